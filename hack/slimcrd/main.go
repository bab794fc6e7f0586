// Command slimcrd rewrites generated CustomResourceDefinitions: embedded core types lose
// their descriptions, items of some lists lose their rules, and quantities, numbers and
// times get bounds.
//
// Pod and PVC templates bring along more than a megabyte of text that the core API
// documents already. With it, a client-side apply exceeds the 256 KiB of an object's
// annotations. What this API says about its own fields stays, for kubectl explain.
//
// Rules of items whose objects are made later cost as often as there are items, more than
// the API server allows. They are asked of the object that is made, and by the webhook.
//
// The generated pattern of quantities allows exponents of any length, and Go clients write
// the number out: one object would hang every client that lists it. Numbers and times that
// Go types cannot hold would keep clients from listing anything.
package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	// generated is the generator's pattern of every quantity. It allows more than
	// quantities: no decoder accepts the exponent of "1.5".
	generated = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`
	bounded   = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,2}))?$`
	// dateTime is what Go clients read as a time. The API server's own format allows small
	// letters, and zones of a hundred hours.
	dateTime = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|(\+|-)([01][0-9]|2[0-3]):[0-5][0-9])$`
)

func main() {
	embedded := flag.String("embedded", "", "comma-separated names of the fields whose descendants lose their descriptions")
	made := flag.String("made", "", "comma-separated names of the fields whose descendants lose their rules")
	flag.Parse()
	s := slimmer{strings.Split(*embedded, ","), strings.Split(*made, ",")}
	for _, path := range flag.Args() {
		if err := s.slim(path); err != nil {
			fmt.Fprintln(os.Stderr, "slimcrd:", err)
			os.Exit(1)
		}
	}
}

// slimmer has the names of fields with special descendants.
type slimmer struct{ embedded, made []string }

// slim rewrites the file at path. Done twice it changes nothing.
func (s slimmer) slim(path string) error {
	in, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(in, &crd); err != nil {
		return fmt.Errorf("parse %q: %w", path, err)
	}
	// Left out, an apply over a definition that names a conversion webhook keeps it.
	crd["spec"].(map[string]any)["conversion"] = map[string]any{"strategy": "None"}
	if err := s.walk(crd, nil); err != nil {
		return fmt.Errorf("bound the scalars of %q: %w", path, err)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("encode %q: %w", path, err)
	}
	return os.WriteFile(path, append([]byte("---\n"), out...), 0o644)
}

// walk visits every map below node, with the keys that lead to it.
func (s slimmer) walk(node any, path []string) error {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			if err := s.walk(item, path); err != nil {
				return err
			}
		}
	case map[string]any:
		// The description of the embedded field itself stays.
		if _, isText := n["description"].(string); isText && isBelow(path, s.embedded) {
			delete(n, "description")
		}
		if isBelow(path, s.made) {
			delete(n, "x-kubernetes-validations")
		}
		if err := bound(n); err != nil {
			return err
		}
		for key, child := range n {
			if err := s.walk(child, append(slices.Clone(path), key)); err != nil {
				return err
			}
		}
	}
	return nil
}

// isBelow reports whether a path leads through one of the fields, and further.
func isBelow(path, fields []string) bool {
	at := slices.IndexFunc(path, func(key string) bool { return slices.Contains(fields, key) })
	return at >= 0 && at < len(path)-1
}

// bound bounds a quantity, a number or a time to what the Go type behind it can hold. An
// integer or text with an unknown pattern is an error: it would pass unbounded.
func bound(schema map[string]any) error {
	pattern, isText := schema["pattern"].(string)
	isIntOrString := schema["x-kubernetes-int-or-string"] == true
	switch {
	case isIntOrString && isText && pattern != generated && pattern != bounded:
		return fmt.Errorf("the pattern %q is not the one of quantities", pattern)
	case isIntOrString && isText:
		schema["pattern"], schema["maxLength"] = bounded, 64
	case isIntOrString, schema["format"] == "int32":
		// Not every API server heeds the format int32.
		for key, limit := range map[string]int{"minimum": math.MinInt32, "maximum": math.MaxInt32} {
			if _, narrower := schema[key]; !narrower {
				schema[key] = limit
			}
		}
	case schema["type"] == "string" && schema["format"] == "date-time":
		// The API server takes a list for any text that has a format: no list has as many items as this asks for.
		schema["pattern"], schema["minItems"], schema["maxItems"] = dateTime, 1, 0
	}
	return nil
}
