package lws

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/resource"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// ReadManifest returns the LeaderWorkerSets of a file; the path "-" means in. skipped describes the objects
// of other kinds.
func ReadManifest(path string, in io.Reader) (sets []*unstructured.Unstructured, skipped []string, err error) {
	builder := resource.NewLocalBuilder().Unstructured().Flatten()
	if path == "-" {
		path = "standard input"
		builder.Stream(in, path)
	} else {
		builder.Path(false, path)
	}
	found, err := builder.Do().Infos()
	if err != nil {
		return nil, nil, fmt.Errorf("%w; give the path of a YAML or JSON file, or - for standard input", err)
	}
	for _, info := range found {
		object := info.Object.(*unstructured.Unstructured)
		if object.GroupVersionKind() != lwsv1.GroupVersion.WithKind("LeaderWorkerSet") {
			skipped = append(skipped, fmt.Sprintf("%s %s %q is not a LeaderWorkerSet", object.GetAPIVersion(), object.GetKind(), object.GetName()))
			continue
		}
		sets = append(sets, object)
	}
	if len(sets) == 0 {
		return nil, nil, fmt.Errorf("%s holds no LeaderWorkerSet; expected apiVersion %s, kind LeaderWorkerSet; %s", path, lwsv1.GroupVersion, strings.Join(skipped, ", "))
	}
	return sets, skipped, nil
}
