// Package operate shows what the pods of a set write and what is told of them, and runs commands in them.
//
// It knows pods by the labels of their set and group, which admission guards, and reads them live. It changes nothing, and
// refuses to know why a group is as it is.
package operate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/page"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Command is a command about pods. Needs is what a user must be allowed to do.
type Command interface {
	Flags(*pflag.FlagSet)
	Needs() string
	Run(context.Context, *Target) error
}

// Target is the pods that a command is about, and how they are reached.
type Target struct {
	Set types.NamespacedName
	// Name is a group by its index or the first digits of its key, or empty for all groups.
	Name string
	// Worker is the index of a pod in the group, and Command runs there.
	Worker  string
	Command []string
	Config  *rest.Config
	Live    client.Reader
	In      io.Reader
	// Raw is written to as it is. The others, and Print, escape what would steer a terminal.
	Raw, Out, ErrOut io.Writer
	Print            func(...page.Report) error
	HasColours       bool
}

// GroupOf is the name of the group of a pod, or of another object.
func GroupOf(object metav1.Object) string {
	if key := workload.HashKey(object); key != "" {
		return identity.IndexText(identity.HashIndex(key))
	}
	return object.GetLabels()[lwsv1.GroupIndexLabelKey]
}

// pods reads the pods, in the order of their groups and of their indexes. The error is NotFound without the set.
func (t *Target) pods(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := t.Live.Get(ctx, t.Set, &lwsv1.LeaderWorkerSet{}); err != nil {
		return nil, err
	}
	if err := t.Live.List(ctx, &pods, client.InNamespace(t.Set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: t.Set.Name}); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return t.Name != "" && GroupOf(&pod) != t.Name || t.Worker != "" && pod.Labels[lwsv1.WorkerIndexLabelKey] != t.Worker
	})
	if len(found) == 0 {
		return nil, fmt.Errorf("no such pod; list groups and pods with: kubectl lockstep status %s -n %s", t.Set.Name, t.Set.Namespace)
	}
	slices.SortFunc(found, func(a, b corev1.Pod) int {
		index := func(of *corev1.Pod, key string) int { n, _ := strconv.Atoi(of.Labels[key]); return n }
		return cmp.Or(cmp.Compare(index(&a, lwsv1.GroupIndexLabelKey), index(&b, lwsv1.GroupIndexLabelKey)), cmp.Compare(GroupOf(&a), GroupOf(&b)),
			cmp.Compare(index(&a, lwsv1.WorkerIndexLabelKey), index(&b, lwsv1.WorkerIndexLabelKey)))
	})
	return found, nil
}
