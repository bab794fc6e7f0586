// Package definitioncache reads CustomResourceDefinitions, and what objects have beyond ours.
//
// It knows the definition of this version, and remembers the comparison with the one in the cluster. It refuses to know
// what a kind is for: each wing asks for its own.
package definitioncache

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/config/crd"
	"lockstep.dev/lockstep/internal/definition"
)

// Definition compares the CustomResourceDefinition of a kind in the cluster with that of this version. It is safe for
// concurrent use.
type Definition struct {
	live client.Reader
	kind schema.GroupVersionKind
	// plural is the name of the kind in URLs.
	plural string

	mu sync.Mutex
	// read is the UID and generation that were compared. It is empty before, and after they changed.
	read string
	// theirs and ours are the schemas, if ours lacks fields of spec.
	theirs, ours *definition.Schema
}

// New returns the Definition of a kind. It reads through live, which must not be a cache.
func New(live client.Reader, kind schema.GroupVersionKind, plural string) *Definition {
	return &Definition{live: live, kind: kind, plural: plural}
}

// Name is the name of the CustomResourceDefinition.
func (d *Definition) Name() string { return d.plural + "." + d.kind.Group }

// Changed makes the next read of an object read the definition too, unless it was read at this
// generation. It reports whether a reading is void.
func (d *Definition) Changed(is metav1.Object) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read == "" || d.read == generationOf(is) {
		return false
	}
	d.read = ""
	return true
}

func generationOf(is metav1.Object) string { return fmt.Sprint(is.GetUID(), is.GetGeneration()) }

// BeyondOf returns the fields of a stored object that this version lacks, with their values. A
// default of the definition counts as no value. While this version lacks nothing, no object is read.
func (d *Definition) BeyondOf(ctx context.Context, key types.NamespacedName) (found []string, err error) {
	theirs, ours, err := d.compare(ctx)
	if err != nil || theirs == nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(d.kind)
	if err := d.live.Get(ctx, key, object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	for _, f := range definition.Beyond(map[string]any{"spec": object.Object["spec"]}, theirs, ours) {
		value, err := json.Marshal(f.Value)
		if err != nil {
			return nil, err
		}
		found = append(found, f.Path+"="+string(value))
	}
	return found, nil
}

// compare returns the schemas of both definitions, or nothing if ours has all fields of spec.
func (d *Definition) compare(ctx context.Context) (theirs, ours *definition.Schema, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read != "" {
		return d.theirs, d.ours, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion("apiextensions.k8s.io/v1")
	list.SetKind("CustomResourceDefinitionList")
	if err := d.live.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: d.Name()}); err != nil {
		return nil, nil, fmt.Errorf("read the definition of %ss: %w", d.kind.Kind, err)
	}
	manifest, err := crd.Files.ReadFile(d.kind.Group + "_" + d.plural + ".yaml")
	if err != nil {
		return nil, nil, err
	}
	read := "none"
	for i := range list.Items {
		read = generationOf(&list.Items[i])
		if theirs, ours, err = definition.Compare(&list.Items[i], manifest); err != nil {
			return nil, nil, fmt.Errorf("compare the definition of %ss: %w", d.kind.Kind, err)
		}
	}
	d.read, d.theirs, d.ours = read, theirs, ours
	return theirs, ours, nil
}
