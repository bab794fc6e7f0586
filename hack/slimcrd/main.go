// Command slimcrd rewrites generated CustomResourceDefinitions without the
// descriptions of embedded core types, and with bounds on quantities, numbers and
// times.
//
// The two pod templates and the claim templates bring along more than a
// megabyte of text that the core API documents already. With it, a client-side
// apply would exceed the 256 KiB an object's annotations may take. What this
// API says about its own fields stays, for kubectl explain.
//
// The pattern that the generator gives quantities lets exponents of any length
// through, and the decoders of Go clients write the number out: one object would
// hang every client that lists it. Numbers and times that Go types cannot hold would
// keep those clients from listing anything.
//
// It knows the schema as a tree of maps and refuses to know which API it is:
// what is embedded is recognised by the field names given with -embedded.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	embedded := flag.String("embedded", "", "comma-separated names of the fields whose descendants lose their descriptions")
	flag.Parse()
	for _, path := range flag.Args() {
		if err := slim(path, strings.Split(*embedded, ",")); err != nil {
			fmt.Fprintln(os.Stderr, "slimcrd:", err)
			os.Exit(1)
		}
	}
}

// slim rewrites the file at path. Done twice it changes nothing.
func slim(path string, embedded []string) error {
	in, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(in, &crd); err != nil {
		return fmt.Errorf("parse %q: %w", path, err)
	}
	for _, name := range embedded {
		within(crd, name, dropDescriptions)
	}
	convertNothing(crd)
	boundScalars(crd)
	if err := boundQuantities(crd); err != nil {
		return fmt.Errorf("bound the quantities of %q: %w", path, err)
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("encode %q: %w", path, err)
	}
	return os.WriteFile(path, append([]byte("---\n"), out...), 0o644)
}

// convertNothing says that there is one version and nothing to convert. Left
// unsaid, an apply over a definition that names a conversion webhook keeps it.
func convertNothing(crd map[string]any) {
	if spec, ok := crd["spec"].(map[string]any); ok {
		spec["conversion"] = map[string]any{"strategy": "None"}
	}
}

// within calls visit for the schemas below every property called name.
func within(node any, name string, visit func(map[string]any)) {
	schema, ok := node.(map[string]any)
	if !ok {
		if list, ok := node.([]any); ok {
			for _, item := range list {
				within(item, name, visit)
			}
		}
		return
	}
	for key, child := range schema {
		property, ok := child.(map[string]any)
		if !ok || key != name {
			within(child, name, visit)
			continue
		}
		for _, below := range []string{"properties", "items"} {
			if sub, ok := property[below].(map[string]any); ok {
				visit(sub)
			}
		}
	}
}

// dropDescriptions removes every description below schema. A property called
// "description" is a map and stays.
func dropDescriptions(schema map[string]any) {
	if _, isText := schema["description"].(string); isText {
		delete(schema, "description")
	}
	for _, child := range schema {
		switch c := child.(type) {
		case map[string]any:
			dropDescriptions(c)
		case []any:
			for _, item := range c {
				if m, ok := item.(map[string]any); ok {
					dropDescriptions(m)
				}
			}
		}
	}
}
