package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// offeredAtMost bounds how many names an error offers.
const offeredAtMost = 5

// noSuchSet returns the error that there is no such set, with the sets that there are.
func noSuchSet(ctx context.Context, reader, live client.Reader, key types.NamespacedName) error {
	name, namespace := key.Name, key.Namespace
	var list lwsv1.LeaderWorkerSetList
	if err := reader.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("no leaderworkerset %q in namespace %q", name, namespace)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return fmt.Errorf("no leaderworkerset %q in namespace %q%s", name, namespace, advice("leaderworkersets", names, elsewhere(ctx, live, name)))
}

// elsewhere returns namespaces that have a set of the name, if the user may list them.
func elsewhere(ctx context.Context, live client.Reader, name string) []string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	named := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)}
	if err := live.List(ctx, list, named, client.Limit(offeredAtMost)); err != nil {
		return nil
	}
	var namespaces []string
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return namespaces
}

// advice returns what to try when no object of a kind has the name.
func advice(kind string, names, namespaces []string) string {
	if len(namespaces) > 0 {
		return fmt.Sprintf("; there is one in %s: add -n %s", strings.Join(namespaces, ", "), namespaces[0])
	}
	if len(names) == 0 {
		return ", nor any other; list those of all namespaces with: kubectl get " + kind + " -A"
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), offeredAtMost)], ", ")
	if more := len(names) - offeredAtMost; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "; there are: " + text
}
