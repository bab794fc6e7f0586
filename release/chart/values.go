package chart

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Value is one entry of values.yaml.
type Value struct {
	// Name is the last part of Path.
	Name, Path string
	// Text is the comment above it.
	Text string
	// Marks are the lines of the comment that begin with "+", such as "+enum=a,b".
	Marks map[string]string
	// Default is its node.
	Default *yaml.Node
	// Fields are the values below it. A value with a type of its own has none.
	Fields []Value
}

// Parse returns the values of a values.yaml. It refuses one without a comment.
func Parse(text []byte) ([]Value, error) {
	document := &yaml.Node{}
	if err := yaml.Unmarshal(text, document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("values.yaml: want one map")
	}
	return fields(document.Content[0], "")
}

func fields(of *yaml.Node, path string) (all []Value, err error) {
	for i := 0; i < len(of.Content); i += 2 {
		key, node := of.Content[i], of.Content[i+1]
		v := Value{Name: key.Value, Path: strings.TrimPrefix(path+"."+key.Value, "."), Default: node, Marks: map[string]string{}}
		v.comment(key.HeadComment)
		if v.Text == "" {
			return nil, fmt.Errorf("values.yaml:%d: %s has no comment", key.Line, v.Path)
		}
		if node.Kind == yaml.MappingNode && v.Marks["type"] == "" {
			if v.Fields, err = fields(node, v.Path); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

func (v *Value) comment(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if mark, found := strings.CutPrefix(line, "+"); found {
			name, value, _ := strings.Cut(mark, "=")
			v.Marks[name] = value
			continue
		}
		v.Text = strings.TrimSpace(v.Text + " " + line)
	}
}

// Leaves returns the values that have no fields.
func Leaves(all []Value) (leaves []Value) {
	for _, v := range all {
		if len(v.Fields) == 0 {
			leaves = append(leaves, v)
		}
		leaves = append(leaves, Leaves(v.Fields)...)
	}
	return leaves
}
