package quantity

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check reads JSON of the type that p is of, and refuses the first quantity in it
// that would be costly to decode, with its path. The error of JSON that cannot be
// read is that of encoding/json. Time and memory are linear in the size of data.
//
// Names are compared as they are written: decode what was checked with a decoder
// that heeds case. Every value of a name that is given twice is looked at, as a
// decoder looks at it.
func (p *Places) Check(data []byte) error {
	tokens := json.NewDecoder(bytes.NewReader(data))
	tokens.UseNumber()
	return walk{tokens}.value(p, nil)
}

// walk goes through JSON once. It goes no deeper than the Go type does; what
// holds no quantity is passed over unread.
type walk struct{ *json.Decoder }

func (w walk) value(p *Places, at *field.Path) error {
	if p == nil {
		var unread json.RawMessage
		return w.Decode(&unread)
	}
	token, err := w.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return w.object(p, at)
		}
		return w.list(p, at)
	case string:
		return p.judge(token, at)
	case json.Number:
		return p.judge(token.String(), at)
	}
	return nil
}

func (w walk) object(p *Places, at *field.Path) error {
	for w.More() {
		key, err := w.Token()
		if err != nil {
			return err
		}
		name := key.(string) // the decoder takes nothing else before a colon
		if err := w.value(p.below(name), p.step(at, name)); err != nil {
			return err
		}
	}
	_, err := w.Token()
	return err
}

func (w walk) list(p *Places, at *field.Path) error {
	for i := 0; w.More(); i++ {
		if err := w.value(p.each, at.Index(i)); err != nil {
			return err
		}
	}
	_, err := w.Token()
	return err
}

// step leads to the member called name.
func (p *Places) step(at *field.Path, name string) *field.Path {
	if p.named == nil {
		return at.Key(shown(name))
	}
	return at.Child(name)
}

func (p *Places) judge(text string, at *field.Path) error {
	if !p.here || Harmless(text) {
		return nil
	}
	return field.Invalid(at, shown(text), advice)
}
