package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/cli/page"
)

// Events lists the events of a set and of its objects, or those of one group, the oldest first. Those of earlier pods are
// among them: names outlive pods.
type Events struct{}

// Flags implements Command.
func (Events) Flags(*pflag.FlagSet) {}

// Needs implements Command.
func (Events) Needs() string {
	return "list events, pods, statefulsets, deployments, replicasets, services and persistentvolumeclaims"
}

// Run implements Command.
func (Events) Run(ctx context.Context, t *Target) error {
	found, err := t.events(ctx)
	if err != nil {
		return err
	}
	return t.Print(found)
}

// events reads the events. Of those about the set itself, a group has those that its pods are related to.
func (t *Target) events(ctx context.Context) (*eventList, error) {
	set, events, found := &lwsv1.LeaderWorkerSet{}, &corev1.EventList{}, &eventList{}
	if err := t.Live.Get(ctx, t.Set, set); err != nil {
		return nil, err
	}
	names, err := t.objects(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.Live.List(ctx, events, client.InNamespace(t.Set.Namespace)); err != nil {
		return nil, err
	}
	for _, e := range events.Items {
		isRelated := t.Name == "" || e.Related != nil && names[nameOf(e.Related)]
		if names[nameOf(&e.InvolvedObject)] || e.InvolvedObject.UID == set.UID && isRelated {
			found.Items = append(found.Items, e)
		}
	}
	slices.SortStableFunc(found.Items, func(a, b corev1.Event) int { return lastOf(&a).Compare(lastOf(&b).Time) })
	return found, nil
}

// lastOf is when an event happened last.
func lastOf(e *corev1.Event) *metav1.Time {
	if e.Series != nil {
		return &metav1.Time{Time: e.Series.LastObservedTime.Time}
	}
	return &metav1.Time{Time: cmp.Or(e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time)}
}

func nameOf(ref *corev1.ObjectReference) string { return ref.Kind + " " + ref.Name }

// objects returns the kinds and names of the objects of a set or a group.
func (t *Target) objects(ctx context.Context) (map[string]bool, error) {
	names, claims := map[string]bool{}, &metav1.PartialObjectMetadataList{}
	claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	for kind, list := range map[string]client.ObjectList{
		"Pod": &corev1.PodList{}, "StatefulSet": &appsv1.StatefulSetList{}, "Deployment": &appsv1.DeploymentList{}, "ReplicaSet": &appsv1.ReplicaSetList{},
		"Service": &corev1.ServiceList{}, "PersistentVolumeClaim": claims,
	} {
		if err := t.Live.List(ctx, list, client.InNamespace(t.Set.Namespace), client.MatchingLabels{lwsv1.SetNameLabelKey: t.Set.Name}); err != nil {
			return nil, err
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if object := item.(client.Object); t.Name == "" || GroupOf(object) == t.Name {
				names[kind+" "+object.GetName()] = true
			}
			return nil
		})
	}
	return names, nil
}

// eventList is a page of events.
type eventList struct{ corev1.EventList }

// Write implements page.Report.
func (l *eventList) Write(p *page.Page) {
	if len(l.Items) == 0 {
		p.Linef("no events; the API server keeps them for an hour, unless it is configured otherwise")
	}
	var rows []page.Row
	for i := range l.Items {
		e := &l.Items[i]
		kind, message := page.Cell{Text: e.Type}, e.Message
		if e.Type == corev1.EventTypeWarning {
			kind.Tone = page.Caution
		}
		if often := max(e.Count, ptr.Deref(e.Series, corev1.EventSeries{}).Count); often > 1 {
			message += fmt.Sprintf(" (%d times)", often)
		}
		rows = append(rows, page.Row{p.Age(lastOf(e)), kind, e.Reason, nameOf(&e.InvolvedObject), message})
	}
	p.Table(page.Row{"LAST", "TYPE", "REASON", "OBJECT", "MESSAGE"}, rows)
}
