package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/operator"
	"lockstep.dev/lockstep/test/volcano"
)

// gangs is a cluster with an operator, and a set of one group that is a gang. The test acts as the
// StatefulSet controller.
type gangs struct {
	*cluster
	set *lwsv1.LeaderWorkerSet
	// asked counts the operator's requests for PodGroups.
	asked *atomic.Int64
}

// counting counts requests for PodGroups.
type counting struct {
	http.RoundTripper
	asked *atomic.Int64
}

func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, "/podgroups") {
		c.asked.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}

// The scheduler is named by the configuration or, if that is empty, by the set.
func newGangs(t *testing.T, configured string) *gangs {
	t.Helper()
	c := newCluster(t)
	g := &gangs{cluster: c, asked: &atomic.Int64{}}
	r := c.replica(func(o *operator.Options) {
		if configured != "" {
			o.Config.GangSchedulingManagement = &v1alpha1.GangSchedulingManagement{SchedulerProvider: &configured}
		}
		o.REST = rest.CopyConfig(o.REST)
		o.REST.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{next, g.asked} })
	})
	c.install(func(o *install.Options) { o.WebhookURL = r.webhookURL() })
	r.start().untilReady()
	g.set = newSet("default", "w")
	g.set.Spec.LeaderWorkerTemplate.Size = new(int32(3))
	if configured == "" {
		g.set.Annotations = map[string]string{"lockstep.dev/gang-scheduler": "volcano"}
	}
	c.create(g.set)
	c.createLeader()
	return g
}

// createLeader creates leader 0 of set w as the StatefulSet controller does.
func (c *cluster) createLeader() *corev1.Pod {
	c.t.Helper()
	sts := &appsv1.StatefulSet{}
	c.eventually("the set has its leader StatefulSet", func(ctx context.Context) bool {
		return c.Get(ctx, types.NamespacedName{Namespace: "default", Name: "w"}, sts) == nil
	}, nil)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "w-0", Labels: sts.Spec.Template.Labels, Annotations: sts.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(sts, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: sts.Spec.Template.Spec,
	}
	pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
	c.create(pod)
	return pod
}

// missing waits for the condition GangSchedulerMissing.
func (g *gangs) missing(want metav1.ConditionStatus) {
	g.t.Helper()
	said := ""
	g.eventually("the condition GangSchedulerMissing is "+string(want), func(ctx context.Context) bool {
		if g.Get(ctx, client.ObjectKeyFromObject(g.set), g.set) != nil {
			return false
		}
		said = fmt.Sprint(g.set.Status.Conditions)
		return meta.IsStatusConditionPresentAndEqual(g.set.Status.Conditions, "GangSchedulerMissing", want)
	}, &said)
}

// podGroup waits for the PodGroup until it is as it should be.
func (g *gangs) podGroup(what string, is func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	g.t.Helper()
	list := volcano.PodGroups()
	said := ""
	g.eventually(what, func(ctx context.Context) bool {
		err := g.List(ctx, list, client.InNamespace("default"))
		said = fmt.Sprint(err, list.Items)
		return err == nil && len(list.Items) == 1 && is(&list.Items[0])
	}, &said)
	return &list.Items[0]
}

func (g *gangs) define() {
	g.t.Helper()
	g.eventually("PodGroups can be defined", func(ctx context.Context) bool {
		return g.Create(ctx, volcano.Definition()) == nil // until the last definition is gone
	}, nil)
}

func (g *gangs) undefine() {
	g.t.Helper()
	g.must(g.Delete(g.t.Context(), volcano.Definition()))
}

// told returns the note of each of the set's events with a reason, as often as it came.
func (g *gangs) told(reason string) (notes []string) {
	g.t.Helper()
	list := &eventsv1.EventList{}
	g.must(g.List(g.t.Context(), list, client.InNamespace("default")))
	for _, e := range list.Items {
		if e.Reason != reason || e.Regarding.Name != "w" {
			continue
		}
		notes = append(notes, e.Note)
		for i := 1; e.Series != nil && i < int(e.Series.Count); i++ {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

func isOf(pod *corev1.Pod) func(*unstructured.Unstructured) bool {
	return func(o *unstructured.Unstructured) bool {
		owner := metav1.GetControllerOf(o)
		return owner != nil && owner.UID == pod.UID
	}
}

// The CRD of PodGroups is missing, comes, goes and comes again, beside a running operator.
func TestAGangSchedulerMayComeAndGo(t *testing.T) {
	g := newGangs(t, "")
	g.missing(metav1.ConditionTrue)
	leader, workers := &corev1.Pod{}, &appsv1.StatefulSet{}
	g.read(leader, "default", "w-0")
	name := "w-0-" + leader.Labels[lwsv1.RevisionKey]
	if got := leader.Annotations["scheduling.k8s.io/group-name"]; got != name {
		t.Fatalf("the leader is tied to %q, want %q", got, name)
	}
	g.eventually("the group has workers all the same", func(ctx context.Context) bool {
		return g.Get(ctx, client.ObjectKeyFromObject(leader), workers) == nil
	}, nil)
	if got := workers.Spec.Template.Annotations["scheduling.k8s.io/group-name"]; got != name {
		t.Errorf("workers are tied to %q, want %q", got, name)
	}
	// Events are written behind the deeds that they tell of.
	const progress = 3 // the set progresses, its leaders' StatefulSet is made, and the workers'
	g.eventually("all progress is told", func(context.Context) bool { return len(g.told("GroupsProgressing")) >= progress }, nil)
	if got := g.told("GroupsProgressing"); len(got) != progress { // a CRD that terminates adds one later
		t.Errorf("GroupsProgressing is told %d times, want %d: %v", len(got), progress, got)
	}

	g.define()
	made := g.podGroup("the group has a PodGroup of its leader", isOf(leader))
	if got, _, _ := unstructured.NestedInt64(made.Object, "spec", "minMember"); made.GetName() != name || got != 3 {
		t.Errorf("got %s with minMember %d, want %s with 3", made.GetName(), got, name)
	}
	g.missing(metav1.ConditionFalse)

	g.must(g.Delete(t.Context(), made))
	made = g.podGroup("a PodGroup that was deleted comes back", func(o *unstructured.Unstructured) bool { return o.GetUID() != made.GetUID() })
	drifted := made.DeepCopy()
	_ = unstructured.SetNestedField(drifted.Object, int64(1), "spec", "minMember")
	g.must(g.Update(t.Context(), drifted))
	g.podGroup("drift is repaired", func(o *unstructured.Unstructured) bool {
		got, _, _ := unstructured.NestedInt64(o.Object, "spec", "minMember")
		return got == 3 && o.GetUID() == made.GetUID() && o.GetResourceVersion() != drifted.GetResourceVersion()
	})

	g.undefine()
	g.missing(metav1.ConditionTrue)
	g.staysQuiet()
	g.define()
	g.podGroup("the PodGroup is made again", isOf(leader))
	g.missing(metav1.ConditionFalse)

	for reason, want := range map[string]int{"GangSchedulerMissing": 2, "GangSchedulerFound": 2} {
		g.eventually("all is told of "+reason, func(context.Context) bool { return len(g.told(reason)) >= want }, nil)
		if got := g.told(reason); len(got) != want {
			t.Errorf("%s is told %d times, want %d: %v", reason, len(got), want, got)
		}
	}
}

// staysQuiet checks that the operator requests no kind that the API server does not serve.
func (g *gangs) staysQuiet() {
	g.t.Helper()
	before := g.asked.Load()
	time.Sleep(2 * time.Second)
	if asked := g.asked.Load() - before; asked > 1 {
		g.t.Errorf("PodGroups were asked for %d times while they are not served", asked)
	}
}
