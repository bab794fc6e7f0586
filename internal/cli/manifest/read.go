package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// sizeLimit is the most bytes read from one file. The API server accepts no object above 3 MiB.
const sizeLimit = 16 << 20

// Set is a LeaderWorkerSet as it stands in a file.
type Set struct{ object *unstructured.Unstructured }

// Namespace returns the namespace of the set.
func (s Set) Namespace() string { return s.object.GetNamespace() }

// Read returns the LeaderWorkerSets of a file; the path "-" means in. A set without a namespace gets
// the given one. skipped describes the objects of other kinds.
func Read(path string, in io.Reader, namespace string) (sets []Set, skipped []string, err error) {
	data, err := readFile(path, in)
	if err != nil {
		return nil, nil, err
	}
	objects, err := decode(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%s, %w", title(path), err)
	}
	for i := range objects {
		object := &objects[i]
		switch {
		case object.GroupVersionKind().GroupKind() != lwsv1.Kind("LeaderWorkerSet"):
			skipped = append(skipped, fmt.Sprintf("%s: %s %q is not a LeaderWorkerSet", title(path), object.GetKind(), object.GetName()))
			continue
		case object.GetAPIVersion() != lwsv1.GroupVersion.String():
			return nil, nil, fmt.Errorf("%s: apiVersion %q is not served; write %s", title(path), object.GetAPIVersion(), lwsv1.GroupVersion)
		case object.GetName() == "":
			return nil, nil, fmt.Errorf("%s: metadata.name is missing", title(path))
		case object.GetNamespace() == "":
			object.SetNamespace(namespace)
		}
		sets = append(sets, Set{object})
	}
	if len(sets) == 0 {
		return nil, nil, fmt.Errorf("%s holds no LeaderWorkerSet%s; expected apiVersion %s, kind LeaderWorkerSet",
			title(path), found(skipped), lwsv1.GroupVersion)
	}
	return sets, skipped, nil
}

func found(skipped []string) string {
	if len(skipped) == 0 {
		return ""
	}
	return " (" + strings.Join(skipped[:min(len(skipped), 3)], "; ") + ")"
}

func readFile(path string, in io.Reader) ([]byte, error) {
	const advice = "give the path of a YAML or JSON file, or - for standard input"
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("%w; %s", err, advice)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, sizeLimit+1))
	if err != nil {
		return nil, fmt.Errorf("%w; %s", err, advice)
	}
	if len(data) > sizeLimit {
		return nil, fmt.Errorf("%s is larger than %d MiB", title(path), sizeLimit>>20)
	}
	return data, nil
}

func title(path string) string {
	if path == "-" {
		return "standard input"
	}
	return path
}

// decode returns the objects of all documents, and the items of lists.
func decode(data []byte) ([]unstructured.Unstructured, error) {
	var objects []unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		found, err := decodeOne(document)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
		objects = append(objects, found...)
	}
}

func decodeOne(document []byte) ([]unstructured.Unstructured, error) {
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if string(raw) == "null" {
		return nil, nil // nothing but comments
	}
	var object unstructured.Unstructured
	if err := object.UnmarshalJSON(raw); err != nil {
		return nil, fmt.Errorf("not an object with apiVersion and kind: %w", err)
	}
	if !object.IsList() {
		return []unstructured.Unstructured{object}, nil
	}
	list, err := object.ToList()
	if err != nil {
		return nil, fmt.Errorf("items: %w", err)
	}
	return list.Items, nil
}
