package main

import "fmt"

const (
	// generated is what the generator gives every quantity. It takes more than
	// quantities: an exponent of "1.5" is refused by every decoder.
	generated = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	bounded   = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`

	mostCharacters = 64
)

// boundQuantities bounds the exponent and the length of every quantity below
// node. What is an integer or a text with a pattern is a quantity: a pattern that
// is not known would pass unbounded, so it is an error.
func boundQuantities(node any) error {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			if err := boundQuantities(item); err != nil {
				return err
			}
		}
	case map[string]any:
		if err := boundQuantity(n); err != nil {
			return err
		}
		for _, child := range n {
			if err := boundQuantities(child); err != nil {
				return err
			}
		}
	}
	return nil
}

func boundQuantity(schema map[string]any) error {
	pattern, isText := schema["pattern"].(string)
	if schema["x-kubernetes-int-or-string"] != true || !isText {
		return nil
	}
	if pattern != generated && pattern != bounded {
		return fmt.Errorf("the pattern %q is not the one of quantities", pattern)
	}
	schema["pattern"], schema["maxLength"] = bounded, mostCharacters
	return nil
}
