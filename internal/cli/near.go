package cli

import (
	"cmp"
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

// nearAtMost bounds how many names are offered.
const nearAtMost = 5

// noSuchSet says that there is no such set, and which one may have been meant.
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
	return fmt.Errorf("no leaderworkerset %q in namespace %q%s", name, namespace, advice(name, names, elsewhere(ctx, live, name)))
}

// elsewhere returns the namespaces that have a set of the name, as far as the
// user may know.
func elsewhere(ctx context.Context, live client.Reader, name string) []string {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(lwsv1.GroupVersion.WithKind("LeaderWorkerSetList"))
	named := client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("metadata.name", name)}
	if err := live.List(ctx, list, named, client.Limit(nearAtMost)); err != nil {
		return nil
	}
	var namespaces []string
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return namespaces
}

// advice is what to try instead of the name of a set that nothing bears.
func advice(name string, names, namespaces []string) string {
	return adviceOn("leaderworkersets", name, names, namespaces)
}

// adviceOn is the same for any kind.
func adviceOn(kind, name string, names, namespaces []string) string {
	if len(namespaces) > 0 {
		return fmt.Sprintf("; there is one in %s: add -n %s", strings.Join(namespaces, ", "), namespaces[0])
	}
	if close := near(name, names); len(close) > 0 {
		return "; did you mean " + strings.Join(close, ", ") + "?"
	}
	if len(names) == 0 {
		return ", nor any other; list those of all namespaces with: kubectl get " + kind + " -A"
	}
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), nearAtMost)], ", ")
	if more := len(names) - nearAtMost; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return "; there are: " + text
}

// near returns the names that may have been meant, the likeliest first.
func near(name string, names []string) []string {
	within := max(2, len(name)/3)
	distance := map[string]int{}
	var close []string
	for _, other := range names {
		d := edits(name, other)
		if strings.HasPrefix(other, name) || strings.HasPrefix(name, other) {
			d = 1
		}
		if d <= within {
			distance[other] = d
			close = append(close, other)
		}
	}
	slices.SortFunc(close, func(a, b string) int { return cmp.Or(distance[a]-distance[b], cmp.Compare(a, b)) })
	return close[:min(len(close), nearAtMost)]
}

// edits is the Levenshtein distance: how many characters must be put in, taken
// out or exchanged to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			exchange := diagonal
			if a[i] != b[j] {
				exchange++
			}
			diagonal = row[j+1]
			row[j+1] = min(exchange, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
