// Package argument knows which objects the arguments of commands name, and completes them in a shell.
package argument

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Kind is a kind whose objects arguments name: KIND/NAME, or KIND NAME.
type Kind struct {
	// Words are kubectl's names of the kind.
	Words []string
	// Singular and Form are for errors: the name of the kind, and the expected argument.
	Singular, Form string
	gvk            schema.GroupVersionKind
	// bare: a name alone is one of this kind.
	bare bool
}

// The kinds of arguments.
var (
	Claims = Kind{
		Words:    []string{"pvc", "persistentvolumeclaim", "persistentvolumeclaims"},
		Singular: "PersistentVolumeClaim", Form: "pvc/NAME",
		gvk: corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"),
	}
	Namespaces = Kind{
		Words: []string{"namespace", "ns", "namespaces"}, Singular: "namespace", Form: "namespace/NAME",
		gvk: corev1.SchemeGroupVersion.WithKind("NamespaceList"),
	}
	Nodes = Kind{
		Words: []string{"node", "nodes", "no"}, Singular: "node", Form: "NAME or node/NAME", bare: true,
		gvk: corev1.SchemeGroupVersion.WithKind("NodeList"),
	}
	DisaggregatedSets = Kind{
		Words: []string{
			"dset", "disaggregatedset", "disaggregatedsets",
			"disaggregatedset." + dsv1.GroupVersion.Group, "disaggregatedsets." + dsv1.GroupVersion.Group,
		},
		Singular: "DisaggregatedSet", Form: "dset/NAME or disaggregatedset/NAME",
		gvk: dsv1.GroupVersion.WithKind("DisaggregatedSetList"),
	}
	Sets = Kind{
		Words: []string{
			"lws", "leaderworkerset", "leaderworkersets",
			"leaderworkerset." + lwsv1.GroupVersion.Group, "leaderworkersets." + lwsv1.GroupVersion.Group,
		},
		Singular: "LeaderWorkerSet", Form: "NAME, lws/NAME or leaderworkerset/NAME", bare: true,
		gvk: lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"),
	}
)

// Knows reports whether a word names the kind.
func (k Kind) Knows(word string) bool { return slices.Contains(k.Words, strings.ToLower(word)) }

// IsGiven reports whether the first argument names the kind. A single word is a name.
func (k Kind) IsGiven(args []string) bool {
	if len(args) == 0 {
		return false
	}
	word, _, slashed := strings.Cut(args[0], "/")
	return k.Knows(word) && (slashed || len(args) > 1)
}

// Names reads the arguments of All, each name once.
func (k Kind) Names(args []string) (names []string, err error) {
	all, err := k.All(args)
	for _, name := range all {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, err
}

// All reads KIND NAME…, KIND/NAME… and, for a bare kind, NAME….
func (k Kind) All(args []string) (names []string, err error) {
	said := len(args) > 0 && k.Knows(args[0]) && (len(args) > 1 || !k.bare) // a single argument may be a name
	if said {
		args = args[1:]
	}
	for _, arg := range args {
		word, name, slashed := strings.Cut(arg, "/")
		switch {
		case !slashed && (said || k.bare):
			name = arg
		case !slashed || !k.Knows(word) || name == "" || strings.Contains(name, "/"):
			return nil, fmt.Errorf("%q is no %s: give %s", arg, k.Singular, k.Form)
		}
		names = append(names, name)
	}
	return names, nil
}

// Fit returns names as arguments, in the form that is typed.
func (k Kind) Fit(args []string, typed string, names []string, most int) (all []string) {
	said := len(args) > 0 && k.Knows(args[0])
	given, err := k.Names(args)
	if err != nil || len(given) >= most && (!said || len(args) != 1) {
		return nil
	}
	prefix := ""
	if word, _, slashed := strings.Cut(typed, "/"); slashed && k.Knows(word) {
		prefix = word + "/"
	} else if !k.bare && !said {
		prefix = k.Words[0] + "/"
	}
	for _, name := range names {
		if !slices.Contains(given, name) {
			all = append(all, prefix+name)
		}
	}
	return all
}

// List reads the names of objects in a namespace, or of cluster-scoped objects.
func (k Kind) List(ctx context.Context, live client.Reader, namespace string) (names []string) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(k.gvk)
	_ = live.List(ctx, list, client.InNamespace(namespace))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}
