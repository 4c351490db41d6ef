package selftest

import (
	"fmt"
	"math"
	"strings"
	"text/template"
)

// Geometry is the embedded engine's, in tokens.
type Geometry struct {
	AttentionBlock int `json:"attention_block"`
	RecurrentBlock int `json:"recurrent_block"`
}

// DefaultGeometry is the reference geometry of the fault table.
var DefaultGeometry = Geometry{16, 64}

// write fills in a ladder of the table for a geometry: {{tokens 1.5}} is one and a half
// recurrent blocks in tokens, {{blocks 7}} as many attention blocks as hold seven recurrent
// ones.
func (g Geometry) write(ladder string) (string, error) {
	t, err := template.New("ladder").Funcs(template.FuncMap{
		"tokens": func(x float64) int { return int(x * float64(g.RecurrentBlock)) },
		"blocks": func(x float64) int { return int(math.Ceil(x * float64(g.RecurrentBlock) / float64(g.AttentionBlock))) },
	}).Parse(ladder)
	if err != nil {
		return "", fmt.Errorf("ladder: %w", err)
	}
	var out strings.Builder
	if err := t.Execute(&out, nil); err != nil {
		return "", fmt.Errorf("ladder: %w", err)
	}
	return out.String(), nil
}
