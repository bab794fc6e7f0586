// Package file reads files of users in bounds. A device or a pipe may never end, and a small YAML text may say a lot.
package file

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Read returns the content of a file of at most so many MiB.
func Read(path string, mebibytes int) ([]byte, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = opened.Close() }() // it is only read
	text, err := ReadAll(opened, mebibytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// ReadAll returns all of a stream of at most so many MiB.
func ReadAll(from io.Reader, mebibytes int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(mebibytes)<<20+1))
	if err == nil && len(text) > mebibytes<<20 {
		err = fmt.Errorf("it has more than %d MiB", mebibytes)
	}
	return text, err
}

// deepest is how deep a YAML decoder looks.
const deepest = 10_000

// CheckYAML returns an error if a document of a text has more than so many MiB, as it is or with its aliases written
// out. Decoders bound how many values aliases add, and not their length.
func CheckYAML(text []byte, mebibytes int) error {
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if err != nil {
			return nil // the end, or an error that the decoder has as well
		}
		left := mebibytes<<20 - len(document)
		root := goyaml.Node{}
		if left >= 0 && bytes.ContainsRune(document, '&') && goyaml.Unmarshal(document, &root) == nil {
			left = writtenOut(&root, mebibytes<<20, deepest)
		}
		if left < 0 {
			return fmt.Errorf("a document of it has more than %d MiB, with its aliases written out", mebibytes)
		}
	}
}

// writtenOut returns what is left after the values of a node. An alias of what is around it has no end.
func writtenOut(n *goyaml.Node, left, depth int) int {
	if n.Alias != nil {
		n = n.Alias
	}
	if left -= len(n.Value) + 1; depth == 0 {
		return -1
	}
	for i := 0; i < len(n.Content) && left >= 0; i++ {
		left = writtenOut(n.Content[i], left, depth-1)
	}
	return left
}
