package quantity

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilstrings "k8s.io/utils/strings"
)

// Decimal is a quantity that is a JSON number with a fraction or an exponent. Kubernetes takes it and
// writes a text. A schema of quantities takes only integers and texts.
type Decimal struct {
	// Pointer is where it is (RFC 6901), and Text what Kubernetes writes.
	Pointer, Text string
}

// Decimals returns the decimals of what Check lets pass, and the error of Check.
func (p *Places) Decimals(data []byte) (found []Decimal, err error) {
	err = p.walk(data, func(token json.Token, at *place) error {
		text := fmt.Sprint(token)
		if !Harmless(text) {
			return field.Invalid(at.path(), utilstrings.ShortenString(text, mostShown), advice)
		}
		if _, isNumber := token.(json.Number); isNumber && strings.ContainsAny(text, ".eE") {
			if q, err := resource.ParseQuantity(text); err == nil {
				found = append(found, Decimal{at.pointer(), q.String()})
			}
		}
		return nil
	})
	return found, err
}

// Mistyped returns an error with the path of the first value that is no quantity, in JSON that Check lets
// pass, or nil.
func (p *Places) Mistyped(data []byte) (mistyped *field.Error) {
	_ = p.walk(data, func(token json.Token, at *place) error {
		text := fmt.Sprint(token)
		if _, err := resource.ParseQuantity(strings.TrimSpace(text)); err == nil || token == nil {
			return nil
		}
		mistyped = field.TypeInvalid(at.path(), utilstrings.ShortenString(text, mostShown), "must be a quantity: write it like 500m, 1.5Gi or 1e3")
		return mistyped
	})
	return mistyped
}
