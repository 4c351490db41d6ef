// Package show turns results into text for people. It is the only importer of tablewriter.
package show

import (
	"fmt"
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// Table writes a plain table: no frame, a line under the header, columns as wide as needed.
func Table(w io.Writer, header []string, rows [][]string) {
	t := tablewriter.NewTable(w,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Settings: tw.Settings{
				Separators: tw.Separators{BetweenColumns: tw.Off, BetweenRows: tw.Off, ShowHeader: tw.On},
				Lines:      tw.Lines{ShowHeaderLine: tw.On},
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAlignment(tw.AlignLeft),
		tablewriter.WithRowAlignment(tw.AlignLeft),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithPadding(tw.Padding{Left: "", Right: "  "}),
	)
	t.Header(header)
	for _, r := range rows {
		if err := t.Append(r); err != nil {
			fmt.Fprintf(w, "%v\n", r)
			return
		}
	}
	if err := t.Render(); err != nil {
		fmt.Fprintf(w, "%v\n%v\n", header, rows)
	}
}
