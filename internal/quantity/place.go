package quantity

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	utilstrings "k8s.io/utils/strings"
)

// place is where a value is: a step below another place. nil is the whole.
type place struct {
	above          *place
	step           string
	isKey, isIndex bool // of a map, of a list
}

// path is the place as errors name it.
func (at *place) path() *field.Path {
	switch {
	case at == nil:
		return nil
	case at.isIndex, at.isKey:
		return at.above.path().Key(utilstrings.ShortenString(at.step, mostShown))
	}
	return at.above.path().Child(at.step)
}

// escape writes a step of a JSON pointer (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")

// pointer is the place as patches name it.
func (at *place) pointer() string {
	if at == nil {
		return ""
	}
	return at.above.pointer() + "/" + escape.Replace(at.step)
}
