package admission_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"lockstep.dev/lockstep/internal/lws/admission"
)

// The number in a fault may follow from another field: the fault is the same with another number.
func TestWriteMakesNoFaultThatTheStoredSetHas(t *testing.T) {
	a, b := field.NewPath("a"), field.NewPath("b")
	tooLong := func(at *field.Path, why string) *field.Error { return field.Invalid(at, "x", why).WithOrigin("length") }
	for name, tt := range map[string]struct {
		fault, stored *field.Error
		isMade        bool
	}{
		"the same":              {field.Required(a, "why"), field.Required(a, "why"), false},
		"another number":        {tooLong(a, "at most 49"), tooLong(a, "at most 50"), false},
		"another field":         {tooLong(b, "at most 50"), tooLong(a, "at most 50"), true},
		"another value":         {field.Invalid(a, 2, "why"), field.Invalid(a, 1, "why"), true},
		"another rule":          {field.Invalid(a, 1, "partition"), field.Invalid(a, 1, "claims"), true},
		"a rule without origin": {tooLong(a, "at most 50"), field.Invalid(a, "x", "other"), true},
	} {
		made := admission.Made(field.ErrorList{tt.fault}, field.ErrorList{tt.stored})
		if (len(made) == 1) != tt.isMade {
			t.Errorf("%s: the write makes %v, want %t", name, made, tt.isMade)
		}
	}
}
