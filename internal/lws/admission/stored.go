package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Made returns the faults that a write makes: those that the stored set does not have. A set may be older
// than a rule. It must stay open to all other changes, also to those of the garbage collector.
func Made(faults, stored field.ErrorList) field.ErrorList {
	return slices.DeleteFunc(slices.Clone(faults), func(f *field.Error) bool { return isIn(stored, f) })
}

// isIn knows a fault by its text, or by its origin: the number in its text may follow from other fields.
func isIn(faults field.ErrorList, fault *field.Error) bool {
	return slices.ContainsFunc(faults, func(f *field.Error) bool {
		if fault.Origin != "" {
			return f.Field == fault.Field && f.Origin == fault.Origin
		}
		return f.Error() == fault.Error()
	})
}
