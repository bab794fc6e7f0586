package quantity

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check reads JSON of the type of p, and returns an error with the path of the first
// quantity that is costly to decode. Time and memory are linear in the size of data.
//
// Names are case-sensitive, so the decoder must be, too. Each value of a repeated name is
// checked, as a decoder reads each.
func (p *Places) Check(data []byte) error {
	tokens := json.NewDecoder(bytes.NewReader(data))
	tokens.UseNumber()
	return walk{tokens}.value(p, nil)
}

// walk reads JSON once. It skips values whose Go type has no quantity.
type walk struct{ *json.Decoder }

func (w walk) value(p *Places, at *field.Path) error {
	if p == nil {
		var skipped json.RawMessage
		return w.Decode(&skipped)
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
		name := key.(string) // the decoder accepts only strings before a colon
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

// step returns the path of a member.
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
