package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"kvladder/arms"
)

// SlotFile is where what lies in a file that llama-server saved a slot to
// (llama_state_seq_save_file in src/llama-context.cpp, state_write in src/llama-kv-cache.cpp;
// version 4, of build 11669). All numbers are little-endian.
//
//	u32 magic "ggsq", u32 version, u32 n, n x i32     the tokens, with four numbers of the server's own around them
//	u32 streams; for each: u32 cells, and where it has any:
//	  cells x (i32 position, u32 sequences, sequences x i32)
//	  u32 transposed, u32 layers, u64
//	  layers x (i32 type, u64 bytes of a row, cells rows)         keys
//	  layers x the same                                           values
//	  or, transposed: layers x (i32 type, u32 bytes of a value, u32 width, width columns of cells values)
//	the states of recurrent layers, where the model has them
type SlotFile struct {
	Tokens   int // prompt and reply that the slot held
	Cells    int
	Sections []SlotSection
}

// SlotSection is the keys or the values of one layer.
type SlotSection struct {
	Kind       string // "K" or "V"
	Layer      int
	Type       int // of ggml: 0 = f32, 1 = f16, 2 = q4_0, 8 = q8_0, 30 = bf16
	Row        int // bytes of the row of one token; 0 where it is transposed
	Width      int // transposed: values of a token
	Transposed bool
	From, To   int // bytes of the file
}

// Types of ggml (ggml/include/ggml.h), and how many bytes how many values take.
const (
	ggmlF32  = 0
	ggmlF16  = 1
	ggmlQ4_0 = 2
	ggmlQ8_0 = 8
	ggmlBF16 = 30
)

// blockOf is the bytes of a quantized block of 32 values: a scale in f16 before them.
var blockOf = map[int]int{ggmlQ4_0: 18, ggmlQ8_0: 34}

const slotMagic, slotVersion = 0x67677371, 4

// ParseSlotFile reads the layout of a slot file. A file of another layout is an error: what
// is not understood is not changed.
func ParseSlotFile(b []byte) (f SlotFile, err error) {
	at := 0
	fail := func(format string, args ...any) error {
		return fmt.Errorf("byte %d: %s: this is no slot file of the layout that is known", at, fmt.Sprintf(format, args...))
	}
	next := func() int {
		if err != nil || at+4 > len(b) {
			if err == nil {
				err = fail("it ends early")
			}
			return 0
		}
		v := int(int32(binary.LittleEndian.Uint32(b[at:])))
		at += 4
		return v
	}
	skip := func(n int) {
		if err == nil && (n < 0 || at+n > len(b)) {
			err = fail("%d more bytes are announced and %d are there", n, len(b)-at)
		}
		if err == nil {
			at += n
		}
	}
	magic, version, n := next(), next(), next()
	if err == nil && (magic != slotMagic || version != slotVersion) {
		err = fail("magic %x, version %d", magic, version)
	}
	if n < 4 || n > len(b)/4 {
		return f, cmpErr(err, fail("%d tokens", n))
	}
	skip(4 * n)
	f.Tokens = n - 4
	streams := next()
	if streams < 1 || streams > 1024 {
		return f, cmpErr(err, fail("%d streams", streams))
	}
	for range streams {
		cells := next()
		if err != nil {
			return f, err
		}
		if cells == 0 {
			continue
		}
		f.Cells += cells
		for range cells {
			next()
			if k := next(); k < 0 || k > 1024 {
				return f, cmpErr(err, fail("a cell of %d sequences", k))
			} else {
				skip(4 * k)
			}
		}
		transposed, layers := next(), next()
		if transposed != 0 && transposed != 1 || layers < 1 || layers > 4096 {
			return f, cmpErr(err, fail("transposed %d, %d layers", transposed, layers))
		}
		skip(8)
		for _, kind := range []string{"K", "V"} {
			for l := range layers {
				s := SlotSection{Kind: kind, Layer: l, Type: next(), Transposed: kind == "V" && transposed == 1}
				size := 0
				if s.Transposed {
					size = next()
					s.Width = next()
					size *= s.Width
				} else {
					s.Row = next()
					if next() != 0 {
						return f, cmpErr(err, fail("a row of 4 GiB"))
					}
					size = s.Row
				}
				s.From = at
				skip(size * cells)
				if err != nil {
					return f, err
				}
				s.To = at
				f.Sections = append(f.Sections, s)
			}
		}
	}
	if err == nil && len(f.Sections) == 0 {
		err = fail("no layer")
	}
	return f, err
}

func cmpErr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

// CheckDamage:
//
//	scale FACTOR          every key and value, times FACTOR
//	low-bit LAYER         the lowest bit of one value of the keys of LAYER, 32 tokens into the prompt
//	low-bits LAYER        the lowest bit of every value of the keys of LAYER in the 16 tokens from there on
//	nan LAYER             one value of the keys of LAYER is made no number, 32 tokens into the prompt
func (LlamaCpp) CheckDamage(args []string) string {
	const how = "use scale FACTOR, low-bit LAYER, low-bits LAYER or nan LAYER"
	if len(args) != 2 {
		return how
	}
	switch args[0] {
	case "scale":
		if x, err := strconv.ParseFloat(args[1], 64); err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
			return fmt.Sprintf("%q is no factor; %s", args[1], how)
		}
	case "low-bit", "low-bits", "nan":
		if n, err := strconv.Atoi(args[1]); err != nil || n < 0 {
			return fmt.Sprintf("%q is no layer; %s", args[1], how)
		}
	default:
		return fmt.Sprintf("%q is not known; %s", args[0], how)
	}
	return ""
}

// Damage changes every slot file as args say. The files stay well formed, so the server takes
// them.
func (l LlamaCpp) Damage(res arms.Resources, args []string) (string, error) {
	if why := l.CheckDamage(args); why != "" {
		return "", errors.New(why)
	}
	files, err := filepath.Glob(filepath.Join(res.Slots, "slot-*.bin"))
	if err != nil || len(files) == 0 {
		return "", fmt.Errorf("no slot file to damage in the store (%v)", err)
	}
	changed := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		f, err := ParseSlotFile(b)
		if err != nil {
			return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		n, err := f.damage(b, args)
		if err != nil {
			return "", fmt.Errorf("%s: %w", filepath.Base(name), err)
		}
		changed += n
		if err := os.WriteFile(name, b, 0o644); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%s: %d values changed in %d files", strings.Join(args, " "), changed, len(files)), nil
}

// deep is how many tokens into the prompt single values are damaged, and wide for how many:
// every prompt of a ladder is longer, and what comes before stays as it was.
const deep, wide = 32, 16

func (f *SlotFile) damage(b []byte, args []string) (changed int, err error) {
	if args[0] == "scale" {
		x, _ := strconv.ParseFloat(args[1], 64)
		for _, s := range f.Sections {
			n, err := scaleSection(b[s.From:s.To], s.Type, x)
			if err != nil {
				return changed, err
			}
			changed += n
		}
		return changed, nil
	}
	layer, _ := strconv.Atoi(args[1])
	for _, s := range f.Sections {
		if s.Kind != "K" || s.Layer != layer {
			continue
		}
		if f.Cells < deep+wide && (args[0] == "low-bits" || f.Cells <= deep) {
			return 0, fmt.Errorf("%d tokens, and the damage goes to token %d", f.Cells, deep+wide)
		}
		v := b[s.From+deep*s.Row:]
		switch {
		case args[0] == "low-bits":
			for t := range wide {
				changed += lowBits(v[t*s.Row:(t+1)*s.Row], s.Type)
			}
			return changed, nil
		case args[0] == "low-bit" && blockOf[s.Type] > 0:
			v[2] ^= 1 // of the first quantized value, behind the scale of its block
		case args[0] == "low-bit":
			v[0] ^= 1
		case s.Type == ggmlF32:
			binary.LittleEndian.PutUint32(v, 0x7fc00000)
		case s.Type == ggmlBF16:
			binary.LittleEndian.PutUint16(v, 0x7fc0)
		default: // f16, and the scale of a block
			binary.LittleEndian.PutUint16(v, 0x7e00)
		}
		return 1, nil
	}
	return 0, fmt.Errorf("there is no layer %d", layer)
}

// lowBits flips the lowest bit of every value; in q4_0 two of them share a byte.
func lowBits(b []byte, kind int) (n int) {
	flip := func(at, every int, mask byte) {
		for i := at; i < len(b); i += every {
			b[i] ^= mask
			n++
		}
	}
	switch kind {
	case ggmlF32:
		flip(0, 4, 1)
	case ggmlF16, ggmlBF16:
		flip(0, 2, 1)
	case ggmlQ8_0, ggmlQ4_0:
		size, mask := blockOf[kind], byte(1)
		if kind == ggmlQ4_0 {
			mask = 0x11
		}
		for block := 0; block+size <= len(b); block += size {
			for i := block + 2; i < block+size; i++ {
				b[i] ^= mask
			}
			n += 32
		}
	}
	return n
}

// scaleSection multiplies values; of a quantized block the scale is multiplied.
func scaleSection(b []byte, kind int, x float64) (int, error) {
	switch kind {
	case ggmlF32:
		for i := 0; i+4 <= len(b); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(b[i:]))
			binary.LittleEndian.PutUint32(b[i:], math.Float32bits(float32(float64(v)*x)))
		}
		return len(b) / 4, nil
	case ggmlF16:
		for i := 0; i+2 <= len(b); i += 2 {
			scaleHalf(b[i:], x)
		}
		return len(b) / 2, nil
	case ggmlBF16:
		for i := 0; i+2 <= len(b); i += 2 {
			v := math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[i:])) << 16)
			bits := math.Float32bits(float32(float64(v) * x))
			bits += 0x7fff + bits>>16&1 // to the nearest, ties to even
			binary.LittleEndian.PutUint16(b[i:], uint16(bits>>16))
		}
		return len(b) / 2, nil
	}
	size := blockOf[kind]
	if size == 0 {
		return 0, fmt.Errorf("values of ggml type %d are not known", kind)
	}
	for i := 0; i+size <= len(b); i += size {
		scaleHalf(b[i:], x)
	}
	return len(b) / size * 32, nil
}

func scaleHalf(b []byte, x float64) {
	binary.LittleEndian.PutUint16(b, toHalf(fromHalf(binary.LittleEndian.Uint16(b))*x))
}

// fromHalf and toHalf convert IEEE 754 binary16, to the nearest and ties to even.
func fromHalf(h uint16) float64 {
	sign, exp, frac := 1.0, int(h>>10&0x1f), float64(h&0x3ff)
	if h&0x8000 != 0 {
		sign = -1
	}
	switch exp {
	case 0:
		return sign * math.Ldexp(frac, -24)
	case 31:
		if frac != 0 {
			return math.NaN()
		}
		return math.Inf(int(sign))
	}
	return sign * math.Ldexp(1024+frac, exp-25)
}

func toHalf(v float64) uint16 {
	var sign uint16
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	switch {
	case math.IsNaN(v):
		return sign | 0x7e00
	case v >= 65520:
		return sign | 0x7c00
	}
	exp := max(-14, math.Ilogb(v))
	if v == 0 {
		exp = -14
	}
	n := math.RoundToEven(math.Ldexp(v, 10-exp)) // in units of the last place
	if exp == -14 && n < 1024 {
		return sign | uint16(n)
	}
	if n == 2048 {
		n, exp = 1024, exp+1
	}
	return sign | uint16(exp+15)<<10 | uint16(n-1024)
}
