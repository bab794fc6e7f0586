package manifest

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// sizeLimit is the most bytes read from one file. No object that the API server
// takes is larger than 3 MiB.
const sizeLimit = 16 << 20

// document is one object of a file.
type document struct {
	object *unstructured.Unstructured
	// where says which file, and where in it.
	where string
}

// readFile returns the content of a file; "-" is in.
func readFile(path string, in io.Reader) ([]byte, error) {
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%w; give the path of a YAML or JSON file, or - for standard input", err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, sizeLimit+1))
	if err != nil {
		return nil, fmt.Errorf("%w; give the path of a YAML or JSON file, or - for standard input", err)
	}
	if len(data) > sizeLimit {
		return nil, fmt.Errorf("%s is larger than %d MiB: that is no manifest", title(path), sizeLimit>>20)
	}
	return data, nil
}

func title(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// documents takes a file apart. Lists are taken apart too.
func documents(path string, data []byte) ([]document, error) {
	var all []document
	for _, part := range split(data) {
		where := fmt.Sprintf("%s, line %d", title(path), part.line)
		raw, err := part.json()
		if err != nil {
			return nil, fmt.Errorf("%s: not YAML: %w", title(path), err)
		}
		if string(raw) == "null" {
			continue // nothing but comments
		}
		tree, err := object(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		u := &unstructured.Unstructured{Object: tree}
		if !u.IsList() {
			all = append(all, document{object: u, where: where})
			continue
		}
		list, err := u.ToList()
		if err != nil {
			return nil, fmt.Errorf("%s: items: %w", where, err)
		}
		for i := range list.Items {
			all = append(all, document{object: &list.Items[i], where: fmt.Sprintf("%s, items[%d]", where, i)})
		}
	}
	return all, nil
}

type part struct {
	text []byte
	line int // of its first line that is not empty, from 1
}

// json reads the part alone: with the lines above it, a file of many small parts
// would be read as often as it has parts. What is wrong is told of its place.
func (p part) json() ([]byte, error) {
	raw, err := yaml.YAMLToJSONStrict(p.text)
	if err == nil {
		return raw, nil
	}
	if _, placed := yaml.YAMLToJSONStrict(p.inPlace()); placed != nil {
		err = placed
	}
	return nil, err
}

// inPlace is the text with as many lines above it as in its file, so that errors
// name the right one.
func (p part) inPlace() []byte {
	return append(bytes.Repeat([]byte("\n"), p.line-1), p.text...)
}

// split cuts a file at the lines that begin with three dashes.
func split(data []byte) []part {
	var parts []part
	var text []byte
	line, begin, blank := 0, 1, true
	flush := func() {
		if !blank {
			parts = append(parts, part{text: text, line: begin})
		}
		text, begin, blank = nil, line+1, true
	}
	for l := range bytes.Lines(data) {
		line++
		if bytes.HasPrefix(l, []byte("---")) {
			flush()
			continue
		}
		if blank {
			text, begin = nil, line
		}
		text = append(text, l...)
		blank = blank && len(bytes.TrimSpace(l)) == 0
	}
	flush()
	return parts
}
