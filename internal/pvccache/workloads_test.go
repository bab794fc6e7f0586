package pvccache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/config"
	"lockstep.dev/lockstep/internal/kinds"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/internal/pvc/workloads"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

var noneStarted workloads.GroupSize = func(*lwsv1.LeaderWorkerSet) int { return 0 }

// emptyWorkloads have no objects, and no list ends. LeaderWorkerSets are served, JobSets are not.
func emptyWorkloads(t *testing.T) *Workloads {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/apis/"+lwsv1.GroupVersion.String():
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[{"name":"leaderworkersets","kind":"LeaderWorkerSet"}]}`)
		case strings.HasPrefix(r.URL.Path, "/apis/"+workloads.JobSet.Group):
			w.WriteHeader(http.StatusNotFound)
		default:
			<-r.Context().Done()
		}
	}))
	ctx, stop := context.WithCancel(t.Context())
	config := &rest.Config{Host: server.URL}
	starter := expect.Value(kinds.New(config, server.Client()))(t)
	client := expect.Value(kubernetes.NewForConfig(config))(t)
	w := expect.Value(NewWorkloads(client, starter, []workloads.Kind{workloads.JobSet}, noneStarted, cache.DefaultWatchErrorHandler))(t)
	expect.That(t, !w.others[1].IsRead(), "JobSets are known before discovery")
	var running sync.WaitGroup
	running.Go(func() { _ = starter.Run(ctx) })
	t.Cleanup(func() { stop(); server.CloseClientConnections(); running.Wait(); server.Close() })
	for deadline := time.Now().Add(10 * time.Second); w.others[0].Watched() == nil || !w.others[1].IsRead(); time.Sleep(time.Millisecond) {
		expect.Must(t, !time.Now().After(deadline), "discovery is not read")
	}
	return w
}

// put adds an object to the informer of its kind.
func (d *Workloads) put(t *testing.T, object metav1.Object) {
	t.Helper()
	w := reduced(t, object)
	kind := schema.FromAPIVersionAndKind(w.want.Workload.APIVersion, string(w.want.Workload.Kind)).GroupKind()
	expect.OK(t, d.indexers()[kind].Add(w))
}

func reduced(t *testing.T, object metav1.Object) *workload {
	t.Helper()
	of := workloads.BuiltIn
	if set, ok := object.(*lwsv1.LeaderWorkerSet); ok {
		of, object = noneStarted.OfLeaderWorkerSet, fakeapi.Untyped(set)
	}
	return expect.Value(workloadOf(of)(object))(t).(*workload)
}

func named(kind, name string, owner metav1.Object, ownerKind string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(kind + "-" + name), ResourceVersion: "1"}
	if owner != nil {
		version := map[string]string{"Pod": "v1", "StatefulSet": "apps/v1", "LeaderWorkerSet": lwsv1.GroupVersion.String()}[ownerKind]
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: ownerKind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true)}}
	}
	return m
}

func statefulSetOf(m metav1.ObjectMeta, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: m, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
	}}
}

func TestWorkloadsAreFoundByThePVCsTheyWant(t *testing.T) {
	d := emptyWorkloads(t)
	d.put(t, statefulSetOf(named("sts", "db", nil, ""), 2))
	d.put(t, statefulSetOf(named("sts", "db-0", nil, ""), 2))
	web := &appsv1.Deployment{ObjectMeta: named("deploy", "web", nil, "")}
	web.Spec.Template.Spec.Volumes = fakeapi.Using("data-db-0")
	d.put(t, web)
	for claim, want := range map[string][]string{
		"data-db-0": {"db", "web"}, "data-db-7": {"db"}, "data-db-0-1": {"db-0"}, "data": nil, "data-web-0": nil,
	} {
		var got []string
		wants := fakeapi.Each(d.wanting("ns", claim), func(w *workload) workloads.Want { return w.want })
		for _, match := range workloads.NewDesire("ns", wants).Of(claim) {
			got = append(got, match.Want.Workload.Name)
		}
		slices.Sort(got)
		expect.Equalf(t, want, got, "%s", claim)
		expect.Emptyf(t, d.wanting("other", claim), "who wants %s from another namespace", claim)
	}
}

func TestOnlyChangedWantsAreReported(t *testing.T) {
	d := emptyWorkloads(t)
	told := 0
	d.Follow(func(key types.NamespacedName) {
		told++
		expect.Equal(t, types.NamespacedName{Namespace: "ns", Name: "data-db"}, key)
	})
	before := reduced(t, statefulSetOf(named("sts", "db", nil, ""), 2))
	busy := statefulSetOf(named("sts", "db", nil, ""), 2)
	busy.ResourceVersion, busy.Status.ReadyReplicas = "2", 1
	stateless := reduced(t, &appsv1.Deployment{ObjectMeta: named("deploy", "stateless", nil, "")})
	scaled := reduced(t, statefulSetOf(named("sts", "db", nil, ""), 3))
	for _, tt := range []struct {
		was, is *workload
		want    int
	}{{before, reduced(t, busy), 0}, {nil, stateless, 0}, {before, scaled, 1}, {before, nil, 1}} {
		told = 0
		d.report(tt.was, tt.is)
		expect.Equalf(t, tt.want, told, "how often it is told that %+v becomes %+v", tt.was, tt.is)
	}
}

// The chain of a worker's PVC is its StatefulSet, the leader pod, the leader StatefulSet and the set.
func TestTheWorldOfAPVCIsItsChains(t *testing.T) {
	d := emptyWorkloads(t)
	size, groups := int32(2), int32(1)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: named("lws", "a", nil, "")}
	set.Spec.Replicas, set.Spec.LeaderWorkerTemplate.Size = &groups, &size
	leaders := statefulSetOf(named("sts", "a", set, "LeaderWorkerSet"), 1)
	leader := &corev1.Pod{ObjectMeta: named("pod", "a-0", leaders, "StatefulSet")}
	workers := statefulSetOf(named("sts", "a-0", leader, "Pod"), 1)
	workers.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 1}
	worker := &corev1.Pod{ObjectMeta: named("pod", "a-0-1", workers, "StatefulSet"), Spec: corev1.PodSpec{NodeName: "n1", Volumes: fakeapi.Using("data-a-0-1")}}
	for _, w := range []metav1.Object{set, leaders, workers} {
		d.put(t, w)
	}
	h := &Holds{Pods: podsOf(t, "1", leader, worker), Workloads: d}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data-a-0-1", UID: "c"}}
	holders, _ := h.world(claim).Holders(claim)
	names := fakeapi.Each(holders, func(holder pvc.Holder) string { return holder.Name })
	expect.Equal(t, []string{"LeaderWorkerSet/a", "Pod/a-0-1"}, names)
	verdict := pvc.DecideHold(pvc.HoldView{Claim: claim, Mode: pvc.Hold, World: h.world(claim), Now: time.Unix(0, 0), Live: true})
	expect.Equalf(t, "LeaderWorkerSet/a", verdict.Annotations[pvc.HoldersAnnotation], "it says")
}

func TestAnOwnerIsGoneOnlyIfItsKindIsWatched(t *testing.T) {
	d := emptyWorkloads(t)
	there := statefulSetOf(named("sts", "db", nil, ""), 1)
	d.put(t, there)
	h := &Holds{Pods: NewPods(nil, nil), Workloads: d}
	for name, tt := range map[string]struct {
		owner metav1.OwnerReference
		gone  bool
	}{
		"there":           {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: there.UID}, false},
		"another UID":     {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "former"}, true},
		"gone":            {metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "web", UID: "x"}, true},
		"a pod, gone":     {metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "x"}, true},
		"no core pod":     {metav1.OwnerReference{APIVersion: "sandbox.example.com/v1", Kind: "Pod", Name: "web", UID: "x"}, false},
		"not watched":     {metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Cluster", Name: "x", UID: "x"}, false},
		"not served":      {metav1.OwnerReference{APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Name: "x", UID: "x"}, false},
		"a kind's double": {metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "StatefulSet", Name: "x", UID: "x"}, false},
	} {
		tt.owner.Controller = new(true)
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", OwnerReferences: []metav1.OwnerReference{tt.owner}}}
		expect.Equalf(t, tt.gone, pvc.OwnersGone(claim, h.isGone), "%s", name)
	}
}

// standingPolicies has policies and bindings, by kind and name, but those that are away.
type standingPolicies struct {
	client.Reader
	away []string
	err  error
	// unknown begins the names of kinds of policies that are not served.
	unknown string
}

func (s standingPolicies) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	if s.unknown != "" && strings.HasPrefix(kind, s.unknown+"Admission") {
		return &meta.NoKindMatchError{}
	}
	if slices.Contains(s.away, kind+"/"+key.Name) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return s.err
}

func TestDeletedPoliciesAreMissing(t *testing.T) {
	without := func(names ...string) (api standingPolicies) {
		for _, name := range names {
			api.away = append(api.away, "ValidatingAdmissionPolicy/"+name+ours, "MutatingAdmissionPolicy/"+name+ours)
		}
		return api
	}
	unbound := func(kind, name string) standingPolicies {
		return standingPolicies{away: []string{kind + "AdmissionPolicyBinding/" + name + ours}}
	}
	for _, tt := range []struct {
		name  string
		api   standingPolicies
		all   bool // alone, and with an initial hold
		want  []string
		fails bool
	}{
		{"all are there", standingPolicies{}, true, nil, false},
		{"what refuses a deletion", without("refuse-delete"), false, []string{"refuse-delete"}, false},
		{"a binding", unbound("Validating", "guard"), false, []string{"guard"}, false},
		{"both, in order", without("guard", "refuse-delete"), false, []string{"refuse-delete", "guard"}, false},
		{"what has pods gated in mode strict", without("gated"), false, []string{"gated"}, false},
		{"the gate of mode strict", without("gate"), false, []string{"gate"}, false},
		{"a binding of the barrier", unbound("Mutating", "barrier"), false, []string{"barrier"}, false},
		{"the removal of forged annotations", without("forged"), false, []string{"forged"}, false},
		{"policies that were not chosen", without("initial-hold", "pod-protection"), false, nil, false},
		{"policies that were chosen", without("initial-hold", "pod-protection"), true, []string{"pod-protection", "initial-hold"}, false},
		{"unread policies", standingPolicies{err: errors.New("forbidden")}, false, nil, true},
		{"before 1.36, the controller takes their place", standingPolicies{unknown: "Mutating"}, true, nil, false},
		{"before 1.30", standingPolicies{unknown: "Validating"}, false, nil, true},
	} {
		got, err := MissingPolicies(t.Context(), tt.api, tt.all, tt.all)
		for i := range tt.want {
			tt.want[i] += ours
		}
		diff := cmp.Diff(tt.want, got)
		expect.That(t, (err != nil) == tt.fails && diff == "", "%s: %v (-want +got):\n%s", tt.name, err, diff)
	}
}

func TestTheExpectedPoliciesAreInstalled(t *testing.T) {
	var all strings.Builder
	err := fs.WalkDir(config.Files, "protection", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := fs.ReadFile(config.Files, path)
		all.Write(content)
		return err
	})
	expect.OK(t, err)
	installed, sought := map[string]bool{}, map[string]bool{}
	for _, found := range regexp.MustCompile(`kind: (\w*Admission\w*)\nmetadata:\n  name: (\S+)`).FindAllStringSubmatch(all.String(), -1) {
		if !strings.HasPrefix(found[2], "refuse-forged") { // before 1.36 alone
			installed[found[1]+" "+found[2]] = true
		}
	}
	validating, mutating, needing := policies(true, true)
	for kind, names := range map[string][]string{mutatingKind: mutating, validatingKind: append(validating, needing...)} {
		for _, name := range names {
			sought[kind+" "+name+ours], sought[kind+"Binding "+name+ours] = true, true
		}
	}
	expect.Equalf(t, installed, sought, "what is installed, and what is sought")
}

// A live read is shared only by calls that came before it began.
func TestALiveReadIsSharedByEarlierCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads liveReads
		begun, end, got := 0, make(chan struct{}), make(chan *Namespace, 9)
		ask := func(namespace string) {
			got <- reads.of(namespace, func() *Namespace {
				begun++
				<-end
				return &Namespace{}
			})
		}
		go ask("a")
		synctest.Wait()
		for range 3 { // the first has begun: these share the next
			go ask("a")
		}
		go ask("b") // another namespace does not wait
		synctest.Wait()
		expect.Equalf(t, 2, begun, "the reads that run, one for each namespace")
		for range 3 { // the reads that run, and then the shared one
			end <- struct{}{}
			synctest.Wait()
		}
		expect.Equalf(t, 3, begun, "reads")
		expect.Equalf(t, 5, len(got), "calls")
	})
}

// unreadable refuses one kind of list; the other lists are empty.
type unreadable struct {
	client.Reader
	kind string
}

func (u unreadable) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (u unreadable) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if fmt.Sprintf("%T", list) == u.kind {
		return errors.New("forbidden")
	}
	return nil
}

// Only a live read of all kinds may end a hold: a kind that cannot be read may hold the PVC.
func TestALiveViewNeedsAllKinds(t *testing.T) {
	for kind, complete := range map[string]bool{"": true, "*v1.PodList": false, "*v1.StatefulSetList": false} {
		h := &Holds{Reader: Reader{Live: unreadable{kind: kind}}}
		view, err := h.Live(t.Context(), pvc.HoldView{Claim: going("a")})
		expect.That(t, (err == nil) == complete && view.Live == complete,
			"without %q: live %t, error %v", kind, view.Live, err)
	}
}
