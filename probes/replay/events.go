package replay

import (
	"bytes"
	"iter"
)

// isStream reports whether b begins like a stream of server-sent events.
func isStream(b []byte) bool {
	for _, p := range []string{"data:", "event:", "id:", "retry:", "error:", ":"} {
		if bytes.HasPrefix(b, []byte(p)) {
			return true
		}
	}
	return false
}

// events yields the events of a stream as the WHATWG HTML standard cuts them: lines that
// end in LF, CR LF or CR, an event at each blank line, several data lines joined by LF.
// field is "data", or "error" for events of that type and for the error: lines of older
// llama-server builds. An event that the stream ends in is yielded too, so that a cut one
// is noticed and one without its blank line is not lost.
func events(b []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		var data []byte
		has, joined := false, false
		kind := "data"
		flush := func() bool {
			ok := !has || yield(kind, data)
			data, has, joined, kind = nil, false, false, "data"
			return ok
		}
		for len(b) > 0 {
			var line []byte
			line, b = cutLine(b)
			if len(line) == 0 {
				if !flush() {
					return
				}
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":"))
			value = bytes.TrimPrefix(value, []byte(" "))
			switch string(name) {
			case "event":
				if string(value) == "error" {
					kind = "error"
				}
				continue
			case "error":
				kind = "error"
			case "data":
			default: // comments, ids and unknown fields
				continue
			}
			switch {
			case !has:
				data, has = value, true
			case !joined: // copied, since value lies in b
				data, joined = append(append(bytes.Clone(data), '\n'), value...), true
			default:
				data = append(append(data, '\n'), value...)
			}
		}
		flush()
	}
}

// cutLine splits b after its first line end.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexAny(b, "\r\n")
	switch {
	case i < 0:
		return b, nil
	case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
		return b[:i], b[i+2:]
	}
	return b[:i], b[i+1:]
}
