package apply

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// scene is an Actor and the fake API server that it writes to.
type scene struct {
	*fakeapi.Server
	*Actor
	live *fakeapi.Reader
}

func newScene() *scene {
	store := fakeapi.New()
	live := store.Live()
	return &scene{Server: store, Actor: New(store, live), live: live}
}

// add stores an object and returns what names it.
func (s *scene) add(object client.Object) identity.Ref {
	return identity.RefOf(fakeapi.KindOf(object), fakeapi.Add(s.Server, object))
}

// asked returns the only write that was asked for.
func (s *scene) asked(t *testing.T) fakeapi.Request {
	t.Helper()
	expect.Must(t, len(s.Requests) == 1, "%d writes: %+v", len(s.Requests), s.Requests)
	return s.Requests[0]
}

func object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: fakeapi.Namespace, Name: name}
}

func parsed(t *testing.T, encoded string) (value map[string]any) {
	t.Helper()
	expect.OKf(t, json.Unmarshal([]byte(encoded), &value), "%s", encoded)
	return value
}

// judged is the write that a read without any pods allows for a PVC.
func judged(claim client.Object) action.Action {
	c, _ := claim.(*corev1.PersistentVolumeClaim)
	view := pvc.Settings{Alone: true}.Take(c.Namespace, []*corev1.PersistentVolumeClaim{c}).Look(func(string, func(*corev1.Pod)) error { return nil })
	if releases, _ := view.Judge(); len(releases) > 0 {
		return releases[0]
	}
	return view.Forget()[0]
}

func aPVC(finalizers ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: object("data")}
	claim.Finalizers = finalizers
	return claim
}

func deleted(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	claim.DeletionTimestamp = &metav1.Time{}
	return claim
}

func used(claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	claim.Annotations = map[string]string{pvc.UsersAnnotation: "p=1"}
	return claim
}

func gated(gates ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: object("w-0")}
	for _, gate := range gates {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	return pod
}

func lifted(pod client.Object) action.Action {
	p, _ := pod.(*corev1.Pod)
	return pvc.DecideGate(pvc.GateView{Pod: p}).Lift
}

// Each patch changes the judged version alone, and names nothing else.
func TestPatchesNameTheVersionThatWasJudged(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "w-0", UID: "p"}
	revision, previous := &appsv1.ControllerRevision{ObjectMeta: object("r")}, aPVC()
	previous.OwnerReferences = []metav1.OwnerReference{owner}
	ref := func(object client.Object) identity.Ref { return identity.RefOf(fakeapi.KindOf(object), object) }
	for _, tt := range []struct {
		name   string
		object client.Object
		do     func(client.Object) action.Action
		want   string
		waits  bool
	}{
		{"an annotation", aPVC(), func(o client.Object) action.Action {
			return action.Annotate{Object: ref(o), Annotations: map[string]string{"x/a": "1", "x/b": ""}}
		}, `{"metadata":{"annotations":{"x/a":"1","x/b":null}}}`, false},
		{"labels that leave the cache", revision, func(o client.Object) action.Action {
			return action.Relabel{Object: ref(o), Labels: map[string]string{lwsv1.SetNameLabelKey: "", "h": "w"}}
		}, `{"metadata":{"labels":{"h":"w","leaderworkerset.sigs.k8s.io/name":null}}}`, false},
		{"labels that enter the cache", revision, func(o client.Object) action.Action {
			return action.Relabel{Object: ref(o), Labels: map[string]string{lwsv1.SetNameLabelKey: "w", "h": ""}, Number: 3}
		}, `{"metadata":{"labels":{"h":null,"leaderworkerset.sigs.k8s.io/name":"w"}},"revision":3}`, true},
		{"a label of a pod", gated(), func(o client.Object) action.Action {
			return action.Relabel{Object: ref(o), Labels: map[string]string{"h": "w"}, Uncached: true}
		}, `{"metadata":{"labels":{"h":"w"}}}`, false},
		{"a selector", aService(), func(o client.Object) action.Action {
			return action.Relabel{Object: ref(o), Selector: map[string]string{"h": "", "i": "w"}, Uncached: true}
		}, `{"metadata":{"labels":{}},"spec":{"selector":{"h":null,"i":"w"}}}`, false},
		{"no owners", previous, func(o client.Object) action.Action { return action.SetOwner{Object: ref(o)} },
			`{"metadata":{"ownerReferences":[]}}`, true},
		{"an owner", aPVC(), func(o client.Object) action.Action {
			return action.SetOwner{Object: ref(o), Owners: []metav1.OwnerReference{owner}, Annotations: map[string]string{"x/a": ""}}
		}, `{"metadata":{"annotations":{"x/a":null},"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"w-0","uid":"p"}]}}`, true},
		{"finalizers", aPVC(), func(o client.Object) action.Action {
			return action.SetFinalizers{Object: ref(o), Finalizers: []string{"a/b", "c/d"}}
		}, `{"metadata":{"finalizers":["a/b","c/d"]}}`, false},
		{"the first finalizer", deleted(aPVC(pvc.PodsFinalizer, pvc.BarrierFinalizer)), judged, `{"metadata":{"finalizers":["protection.lockstep.dev/barrier"]}}`, false},
		{"the last finalizer beside another", deleted(aPVC("a/b", pvc.BarrierFinalizer)), judged, `{"metadata":{"finalizers":["a/b"]}}`, false},
		{"the last finalizer", deleted(aPVC(pvc.BarrierFinalizer)), judged, `{"metadata":{"finalizers":[]}}`, false},
		{"a use record", used(aPVC()), judged, `{"metadata":{"annotations":{"protection.lockstep.dev/used-by":null}}}`, false},
		{"a gate", gated(pvc.UseGate), lifted, `{"metadata":{},"spec":{"schedulingGates":[]}}`, false},
		{"a gate among others", gated("a", pvc.UseGate, "b/c"), lifted, `{"metadata":{},"spec":{"schedulingGates":[{"name":"a"},{"name":"b/c"}]}}`, false},
	} {
		s := newScene()
		added := fakeapi.Add(s.Server, tt.object)
		what := tt.do(added)
		expect.Value(s.Do(t.Context(), what))(t)
		asked := s.asked(t)
		want := parsed(t, tt.want)
		metadata, _ := want["metadata"].(map[string]any)
		metadata["uid"], metadata["resourceVersion"] = string(added.GetUID()), added.GetResourceVersion()
		expect.Equalf(t, want, parsed(t, asked.Body), "%s", tt.name)
		expect.Equalf(t, tt.waits, asked.Waits, "%s: waits", tt.name)
		_, again := s.Do(t.Context(), what)
		expect.That(t, errors.Is(again, ErrStale) || errors.Is(again, ErrGone), "%s: a second time: %v", tt.name, again)
	}
}

// The status that the operator writes replaces the fields of the status that it knows, and no other.
func TestAStatusKeepsFieldsOfALaterVersion(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newScene()
		set := &lwsv1.LeaderWorkerSet{ObjectMeta: object("w")}
		set.Status.Replicas, set.Status.HPAPodSelector = 3, "a=b"
		raw := expect.Value(json.Marshal(fakeapi.Add(s.Server, set)))(t)
		raw = fakeapi.WithLater(rt, raw)
		status := lwsv1.LeaderWorkerSetStatus{Replicas: rapid.Int32Range(0, 3).Draw(rt, "replicas")}
		ref := identity.RefOf(identity.KindLeaderWorkerSet, set)
		expect.Value(s.Do(t.Context(), action.WriteStatus{Object: ref, Status: &lwsv1.LeaderWorkerSet{Status: status}}))(t)
		after := expect.Value(jsonpatch.MergePatch(raw, []byte(s.asked(t).Body)))(t)
		expect.Equalf(rt, fakeapi.LaterOf(raw), fakeapi.LaterOf(after), "fields of a later version")
		var written lwsv1.LeaderWorkerSet
		expect.OK(t, json.Unmarshal(after, &written))
		expect.Equalf(rt, status, written.Status, "the status")
	})
}

func TestAStatusOfAnyKindIsWritten(t *testing.T) {
	s := newScene()
	scaler := fakeapi.Add(s.Server, &dsv1.DisaggregatedSetRoleScaler{
		ObjectMeta: object("d-decode"),
		Spec:       dsv1.DisaggregatedSetRoleScalerSpec{Replicas: 3}, Status: dsv1.DisaggregatedSetRoleScalerStatus{Selector: "a=b"},
	})
	status := dsv1.DisaggregatedSetRoleScaler{Status: dsv1.DisaggregatedSetRoleScalerStatus{Replicas: 2}}
	what := action.WriteStatus{Object: identity.RefOf(identity.KindDisaggregatedSetRoleScaler, scaler), Status: &status}
	expect.Value(s.Do(t.Context(), what))(t)
	want := map[string]any{
		"metadata": map[string]any{"uid": string(scaler.UID), "resourceVersion": scaler.ResourceVersion},
		"status":   map[string]any{"replicas": 2., "observedGeneration": nil, "selector": nil, "conditions": nil},
	}
	expect.Equalf(t, want, parsed(t, s.asked(t).Body), "the patch")
	written := fakeapi.Find[*dsv1.DisaggregatedSetRoleScaler](s.Server, "d-decode")
	expect.That(t, written.Spec.Replicas == 3 && written.Status.Replicas == 2 && written.Status.Selector == "", "got %+v", written)
	_, err := s.Do(t.Context(), what)
	expect.That(t, errors.Is(err, ErrStale), "onto another version: %v", err)
}

// The zero values come from no decision.
func TestNothingIsWrittenThatWasNotJudged(t *testing.T) {
	for _, what := range []action.Action{
		pvc.Release{}, action.Annotate{}, pvc.Lifting{}, action.Ungate{}, action.SetCondition{},
		action.SetFinalizers{Object: identity.Ref{Kind: identity.KindPersistentVolumeClaim, Namespace: "ns", Name: "data"}},
	} {
		s := newScene()
		if _, err := s.Do(t.Context(), what); err == nil || errors.Is(err, ErrStale) || len(s.Requests) > 0 {
			t.Errorf("%s: got %v, %+v", what.About().Verb, err, s.Requests)
		}
	}
}

// The same write again would meet the same webhook.
func TestOwnersThatAWebhookChangesAreAnError(t *testing.T) {
	s := newScene()
	s.Webhook = func(object client.Object) {
		fakeapi.OwnedBy(object, "apps/v1", fakeapi.Former(identity.KindStatefulSet, "w-0"))
	}
	_, err := s.Do(t.Context(), action.SetOwner{Object: s.add(aPVC())})
	expect.That(t, err != nil && !errors.Is(err, ErrStale), "got %v", err)
}

func aService() *corev1.Service { return &corev1.Service{ObjectMeta: object("w")} }

func aStatefulSet() *appsv1.StatefulSet { return &appsv1.StatefulSet{ObjectMeta: object("w")} }

func TestNothingIsWrittenForAnOwnerThatIsNotAlive(t *testing.T) {
	for name, change := range map[string]func(*fakeapi.Server){
		"gone":                func(s *fakeapi.Server) { fakeapi.Drop[*corev1.Pod](s, "w-0") },
		"another incarnation": func(s *fakeapi.Server) { fakeapi.Edit(s, "w-0", func(pod *corev1.Pod) { pod.UID = "other" }) },
		"being deleted":       func(s *fakeapi.Server) { fakeapi.Terminate[*corev1.Pod](s, "w-0") },
	} {
		s := newScene()
		owner := s.add(fakeapi.Pod("w-0", "w", 0))
		onto := s.add(aPVC())
		change(s.Server)
		for _, a := range []action.Action{
			action.Create{Kind: identity.KindService, Object: aService(), Owner: owner},
			action.Apply{Object: aService(), Onto: owner, Adopter: &owner},
			action.SetOwner{Object: onto, To: &owner},
		} {
			_, err := s.Do(t.Context(), a)
			expect.That(t, errors.Is(err, ErrStale) && len(s.Requests) == 0, "%s: %s: %v", name, a.About().Verb, err)
		}
	}
}

func TestAnOwnerIsReadOnceAPass(t *testing.T) {
	s := newScene()
	missing := action.Create{Kind: identity.KindService, Object: aService(), Owner: fakeapi.Former(identity.KindPod, "w-0")}
	once := s.ForReconcile()
	_, err := once.Do(t.Context(), missing)
	expect.Must(t, errors.Is(err, ErrStale), "%v", err)
	owner := s.add(fakeapi.Pod("w-0", "w", 0)) // an owner found gone is read again
	reads := s.live.Reads
	for range 2 {
		for range 3 {
			expect.Value(once.Do(t.Context(), action.Create{Kind: identity.KindService, Object: aService(), Owner: owner}))(t)
			fakeapi.Drop[*corev1.Service](s.Server, "w")
		}
		once = s.ForReconcile()
	}
	expect.Equalf(t, 2, s.live.Reads-reads, "reads of an owner in two passes")
}

func TestAnOwnerWithoutItsGateIsReadOnlyIfItIsBeingDeleted(t *testing.T) {
	for isDeleted, want := range map[bool]error{false: nil, true: ErrStale} {
		s := newScene()
		pod := fakeapi.Pod("w-0", "w", 0)
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}}
		if isDeleted {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		owner, once := s.add(pod), s.ForReconcile()
		expect.Value(once.Do(t.Context(), action.Ungate{Pod: owner, Gate: "a"}))(t)
		reads := s.live.Reads
		_, err := once.Do(t.Context(), action.Create{Kind: identity.KindService, Object: aService(), Owner: owner})
		isRead := s.live.Reads > reads
		expect.That(t, errors.Is(err, want) && isRead == isDeleted, "being deleted %t: read %t, %v", isDeleted, isRead, err)
	}
}

func aPodGroup() *unstructured.Unstructured {
	return gang.Object(gang.Group{Namespace: fakeapi.Namespace, Name: "w-0-r", MinMember: 2})
}

// deniedAs is how the API server says that a webhook refused, with the code of err.
func deniedAs(err *apierrors.StatusError) error {
	err.ErrStatus.Message = `admission webhook "w.example.com" denied the request: no`
	return err
}

func TestAnswersToACreate(t *testing.T) {
	type answer int
	const (
		created answer = iota
		stale
		taken
		failed
	)
	resource := schema.GroupResource{Group: "g", Resource: "r"}
	exists := func() *apierrors.StatusError { return apierrors.NewAlreadyExists(resource, "w") }
	missing := func() *apierrors.StatusError { return apierrors.NewNotFound(resource, "w") }
	conflict := apierrors.NewConflict(resource, "w", errors.New("modified"))
	podGroup, service, sts := aPodGroup(), aService(), aStatefulSet()
	for _, tt := range []struct {
		name   string
		object action.Object
		err    error
		want   answer
		waits  bool
	}{
		{"a Service", service, nil, created, true},
		{"a Service whose name is taken", service, exists(), taken, true},
		{"a Service that a webhook denies", service, deniedAs(exists()), failed, true},
		{"a StatefulSet", sts, nil, created, true},
		{"a StatefulSet whose name is taken", sts, conflict, taken, true},
		{"a StatefulSet that a webhook denies", sts, deniedAs(apierrors.NewConflict(resource, "w", nil)), failed, true},
		{"a PodGroup", podGroup, nil, created, false},
		{"a PodGroup whose name is taken", podGroup, exists(), taken, false},
		{"a PodGroup whose kind is gone", podGroup, missing(), stale, false},
		{"a PodGroup whose kind goes", podGroup, apierrors.NewMethodNotSupported(resource, "create"), stale, false},
		{"a PodGroup whose kind never was", podGroup, &meta.NoKindMatchError{}, stale, false},
		{"a PodGroup that a webhook denies as missing", podGroup, deniedAs(missing()), failed, false},
		{"a PodGroup that a webhook denies as taken", podGroup, deniedAs(exists()), failed, false},
		{"a PodGroup that is forbidden", podGroup, apierrors.NewForbidden(resource, "w", errors.New("no")), failed, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newScene()
			s.Refuse = func(fakeapi.Request) error { return tt.err }
			owner := s.add(fakeapi.Set("w", 1, 1))
			_, err := s.Do(t.Context(), action.Create{Kind: fakeapi.KindOf(tt.object), Object: tt.object, Owner: owner})
			is := &TakenError{}
			got := failed
			switch {
			case err == nil:
				got = created
			case errors.As(err, &is):
				got = taken
				if is.Name.Name != tt.object.GetName() || fakeapi.KindOf(tt.object) == identity.KindPodGroup && is.Name.APIVersion == "" {
					t.Errorf("%+v is taken", is.Name)
				}
			case errors.Is(err, ErrStale):
				got = stale
			}
			asked := s.asked(t)
			expect.That(t, got == tt.want && asked.Waits == tt.waits, "got %v, waits %t", err, asked.Waits)
		})
	}
}

// A leader StatefulSet is applied to for as long as it exists: an apply creates it, which must
// change none that exists.
func TestALeaderStatefulSetIsCreatedByAnApplyThatCannotChangeOne(t *testing.T) {
	s := newScene()
	create := action.Create{Kind: identity.KindStatefulSet, Object: aStatefulSet(), Owner: s.add(fakeapi.Set("w", 1, 1))}
	expect.Value(s.Do(t.Context(), create))(t)
	metadata, _ := parsed(t, s.asked(t).Body)["metadata"].(map[string]any)
	if _, named := metadata["uid"]; named || metadata["resourceVersion"] != neverLived {
		t.Errorf("got %v", metadata)
	}
	taken := &TakenError{}
	if _, err := s.Do(t.Context(), create); !errors.As(err, &taken) || len(s.Requests) != 1 {
		t.Errorf("a name that is taken: %v, %d writes", err, len(s.Requests))
	}
}

// A set that has an owner is applied to for as long as it exists, too: whole by one manager, and its replicas by another.
func TestASetThatHasAnOwnerIsCreatedAppliedAndDeleted(t *testing.T) {
	s := newScene()
	owner, wanted := s.add(&dsv1.DisaggregatedSet{ObjectMeta: object("d")}), fakeapi.Set("w", 1, 2)
	create := action.Create{Kind: identity.KindLeaderWorkerSet, Object: wanted, Owner: owner}
	expect.Value(s.Do(t.Context(), create))(t)
	made := fakeapi.Find[*lwsv1.LeaderWorkerSet](s.Server, "w")
	expect.Equalf(t, wanted.Spec, made.Spec, "the spec")
	expect.That(t, s.asked(t).Waits, "no read waits for the cache to show it")
	taken := &TakenError{}
	_, err := s.Do(t.Context(), create)
	expect.That(t, errors.As(err, &taken), "a name that is taken: %v", err)
	part := &lwsv1.LeaderWorkerSet{Spec: lwsv1.LeaderWorkerSetSpec{Replicas: new(int32(5))}}
	expect.Value(s.Do(t.Context(), action.Apply{Object: part, Onto: identity.RefOf(identity.KindLeaderWorkerSet, made), FieldOwner: "scale"}))(t)
	scaled := fakeapi.Find[*lwsv1.LeaderWorkerSet](s.Server, "w")
	wanted.Spec.Replicas = new(int32(5))
	expect.Equalf(t, wanted.Spec, scaled.Spec, "the spec with other replicas")
	remove := action.Delete{Object: identity.RefOf(identity.KindLeaderWorkerSet, scaled), OwnerGone: &owner}
	_, err = s.Do(t.Context(), remove)
	expect.That(t, errors.Is(err, ErrStale), "while its owner exists: %v", err)
	fakeapi.Drop[*dsv1.DisaggregatedSet](s.Server, "d")
	expect.Value(s.Do(t.Context(), remove))(t)
	expect.That(t, fakeapi.Find[*lwsv1.LeaderWorkerSet](s.Server, "w") == nil, "it is there")
}

func TestAnApplyReadsBeforeItOnlyWhatACreateLeft(t *testing.T) {
	for applied, want := range map[bool]int{true: 0, false: 1} {
		s := newScene()
		onto := s.add(aStatefulSet())
		what := action.Apply{Object: &appsv1.StatefulSet{}, Onto: onto, FieldOwner: fieldOwner, Applied: applied}
		_, err := s.Do(t.Context(), what)
		expect.That(t, err == nil && s.live.Reads == want, "applied %t: %d live reads, %v", applied, s.live.Reads, err)
		fakeapi.Edit(s.Server, "w", func(sts *appsv1.StatefulSet) { sts.Generation++ })
		if _, err := s.Do(t.Context(), what); !errors.Is(err, ErrStale) {
			t.Errorf("applied %t, onto another version: %v", applied, err)
		}
	}
}

func TestAPodGroupIsAppliedOntoTheVersionThatWasJudged(t *testing.T) {
	s := newScene()
	onto := s.add(aPodGroup())
	part := &unstructured.Unstructured{}
	part.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "w-0", UID: "leader"}})
	before := part.DeepCopy()
	expect.Value(s.Do(t.Context(), action.Apply{Object: part, Onto: onto, FieldOwner: "adopter"}))(t)
	want := map[string]any{
		"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup",
		"metadata": map[string]any{
			"namespace": fakeapi.Namespace, "name": "w-0-r", "uid": string(onto.UID), "resourceVersion": onto.ResourceVersion,
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "w-0", "uid": "leader"}},
		},
	}
	diff := cmp.Diff(want, parsed(t, s.asked(t).Body))
	expect.That(t, diff == "" && !s.asked(t).Waits, "(-want +got)\n%s", diff)
	expect.Equalf(t, before, part, "the decision was changed")
}

func TestADeleteNamesTheUIDAndTheVersionUnlessAnyWillDo(t *testing.T) {
	for name, tt := range map[string]struct {
		change     func(*corev1.Pod)
		anyVersion bool
		want       error
	}{
		"as judged":                         {func(*corev1.Pod) {}, false, nil},
		"another version":                   {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, false, ErrStale},
		"another version, and any will do":  {func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }, true, nil},
		"another incarnation, at any price": {func(pod *corev1.Pod) { pod.UID = "other" }, true, ErrStale},
	} {
		s := newScene()
		ref := s.add(&corev1.Pod{ObjectMeta: object("w-0")})
		if name != "as judged" {
			fakeapi.Edit(s.Server, "w-0", tt.change)
		}
		what := action.Delete{Object: ref, AnyVersion: tt.anyVersion}
		_, err := s.Do(t.Context(), what)
		expect.That(t, errors.Is(err, tt.want) && (fakeapi.Find[*corev1.Pod](s.Server, "w-0") == nil) == (tt.want == nil),
			"%s: %v", name, err)
		expect.That(t, !s.asked(t).Waits, "%s: reads wait for a cache that may never show the delete", name)
		if _, err := s.Do(t.Context(), what); tt.want == nil && !errors.Is(err, ErrGone) {
			t.Errorf("%s: a second delete: %v", name, err)
		}
	}
}

// The annotations are those of the version that was judged: users write them too.
func TestAGateGoesFromAnyVersionOfAPod(t *testing.T) {
	statusWritten := func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodPending }
	for name, tt := range map[string]struct {
		change      func(*corev1.Pod)
		annotations map[string]string
		want        error
	}{
		"the scheduler wrote its status":     {statusWritten, nil, nil},
		"it is another incarnation":          {func(pod *corev1.Pod) { pod.UID = "other" }, nil, ErrStale},
		"it changed, an annotation goes too": {statusWritten, map[string]string{"cost": ""}, ErrStale},
		"as judged, an annotation goes too":  {nil, map[string]string{"cost": ""}, nil},
	} {
		s := newScene()
		pod := &corev1.Pod{ObjectMeta: object("w-0")}
		pod.Annotations = map[string]string{"mine": "1", "cost": "2"}
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
		ref := s.add(pod)
		if tt.change != nil {
			fakeapi.Edit(s.Server, "w-0", tt.change)
		}
		_, err := s.Do(t.Context(), action.Ungate{Pod: ref, Gate: "a", Annotations: tt.annotations})
		expect.That(t, errors.Is(err, tt.want), "%s: %v", name, err)
		after := fakeapi.Find[*corev1.Pod](s.Server, "w-0")
		_, costs := after.Annotations["cost"]
		if gone := tt.want == nil; len(after.Spec.SchedulingGates) == 1 != gone || costs == (gone && tt.annotations != nil) || after.Annotations["mine"] != "1" {
			t.Errorf("%s: gates %v, annotations %v", name, after.Spec.SchedulingGates, after.Annotations)
		}
	}
}

func TestADeleteWaitsForItsOwnerToBeGone(t *testing.T) {
	s := newScene()
	owner, worker := s.add(fakeapi.Pod("w-0", "w", 0)), s.add(fakeapi.Pod("w-0-1", "w", 1))
	remove := action.Delete{Object: worker, OwnerGone: &owner}
	for name, tt := range map[string]struct {
		fails error
		stale bool
	}{
		"the owner exists": {nil, true},
		"it is not read":   {errors.New("down"), false},
		"it is not served": {apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", schema.GroupResource{Resource: "pods"}, "w-0", "404 page not found", 0, true), false},
	} {
		s.live.Fail = func(fakeapi.Name) error { return tt.fails }
		_, err := s.Do(t.Context(), remove)
		expect.That(t, err != nil && errors.Is(err, ErrStale) == tt.stale && len(s.Requests) == 0, "%s: %v", name, err)
	}
	s.live.Fail = nil
	other := identity.OwnerRef(fakeapi.Namespace, metav1.OwnerReference{APIVersion: "apps.kruise.io/v1beta1", Kind: "StatefulSet", Name: "w", UID: "u"})
	_, err := s.Do(t.Context(), action.Delete{Object: worker, OwnerGone: &other})
	expect.That(t, err == nil, "an owner of another group: %v", err)
}

func TestAWriteIsNotTriedWhenWhatItReliesOnChanged(t *testing.T) {
	s := newScene()
	u0, u1 := types.UID("u0"), types.UID("u1")
	for uid, name := range map[types.UID]string{u0: "a-0", u1: "a-1"} {
		pod := &corev1.Pod{ObjectMeta: object(name)}
		pod.UID = uid
		pod.OwnerReferences = []metav1.OwnerReference{{UID: "of " + uid, Controller: new(true)}}
		fakeapi.Add(s.Server, pod)
	}
	fakeapi.Terminate[*corev1.Pod](s.Server, "a-1")
	now := identity.RefOf(identity.KindPod, fakeapi.Find[*corev1.Pod](s.Server, "a-0"))
	before := now
	before.ResourceVersion = "0"
	revision, sts := s.add(&appsv1.ControllerRevision{ObjectMeta: object("r")}), s.add(aStatefulSet())
	for _, tt := range []struct {
		name   string
		relied action.Standing
		holds  bool
	}{
		{"it exists", action.Standing{There: []types.UID{u0}}, true},
		{"it is being deleted", action.Standing{There: []types.UID{u1}}, false},
		{"it is another incarnation", action.Standing{There: []types.UID{"u2"}}, false},
		{"it is unchanged", action.Standing{Unchanged: []identity.Ref{now}}, true},
		{"it changed", action.Standing{Unchanged: []identity.Ref{before}}, false},
		{"the name is free", action.Standing{NoOther: []action.Names{{Base: "a", First: 7, End: 8}}}, true},
		{"the object of the name is being deleted", action.Standing{NoOther: []action.Names{{Base: "a", First: 1, End: 2}}}, true},
		{"the name is taken", action.Standing{NoOther: []action.Names{{Base: "a", End: 1}}}, false},
		{"no other leader is in the range", action.Standing{There: []types.UID{u0}, NoOther: []action.Names{{Base: "a", End: 9}}}, true},
		{"another leader is in the range", action.Standing{NoOther: []action.Names{{Base: "a", End: 9}}}, false},
		{"the other leader is below the range", action.Standing{NoOther: []action.Names{{Base: "a", First: 1, End: 9}}}, true},
		{"the other leader is of another set", action.Standing{NoOther: []action.Names{{Base: "b", End: 9}}}, true},
		{"one exists", action.Standing{None: true}, false},
		{"the one that it controls exists", action.Standing{None: true, Of: "of u0"}, false},
		{"the one that it controls is being deleted", action.Standing{None: true, Of: "of u1"}, true},
		{"it controls none", action.Standing{None: true, Of: "another"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.relied.Kind = identity.KindPod
			relies := []action.Standing{tt.relied}
			for _, what := range []action.Action{
				action.Apply{Object: &appsv1.StatefulSet{}, Onto: sts, FieldOwner: fieldOwner, Applied: true, Relies: relies},
				action.Relabel{Object: revision, Relies: relies},
				action.Delete{Object: revision, Relies: relies},
				action.Ungate{Pod: now, Relies: relies},
			} {
				s.Requests = nil
				s.Refuse = func(fakeapi.Request) error { return errors.New("it is tried") }
				if _, err := s.Do(t.Context(), what); errors.Is(err, ErrStale) == tt.holds || (len(s.Requests) > 0) != tt.holds {
					t.Errorf("%s: %v, %d writes", what.About().Verb, err, len(s.Requests))
				}
			}
		})
	}
	fakeapi.Edit(s.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas++ })
	what := action.Apply{Object: &appsv1.StatefulSet{}, Onto: sts, FieldOwner: fieldOwner, Applied: true, Relies: []action.Standing{{Kind: identity.KindPod}}}
	s.Requests = nil
	_, err := s.Do(t.Context(), what)
	expect.That(t, errors.Is(err, ErrStale) && len(s.Requests) == 0, "onto another version: %v", err)
}

func TestAWriteReliesOnObjectsWithTheNamespaceTheNameAndTheLabels(t *testing.T) {
	for name, tt := range map[string]struct {
		relied action.Standing
		holds  bool
	}{
		"the pods of a set":             {action.Standing{Namespace: fakeapi.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: "w"}}, false},
		"the pods of a set without any": {action.Standing{Namespace: fakeapi.Namespace, Labels: map[string]string{lwsv1.SetNameLabelKey: "u"}}, true},
		"a pod":                         {action.Standing{Namespace: fakeapi.Namespace, Name: "v-0"}, false},
		"a pod that does not exist":     {action.Standing{Namespace: fakeapi.Namespace, Name: "v-1"}, true},
		"the pods of another namespace": {action.Standing{Namespace: "other"}, true},
		"objects of another kind":       {action.Standing{Kind: identity.KindLeaderWorkerSet, Namespace: fakeapi.Namespace}, true},
	} {
		s := newScene()
		fakeapi.Add(s.Server, fakeapi.Pod("w-0", "w", 0))
		fakeapi.Add(s.Server, fakeapi.Pod("v-0", "v", 0))
		tt.relied.None = true
		if tt.relied.Kind == "" {
			tt.relied.Kind = identity.KindPod
		}
		_, err := s.Do(t.Context(), action.Delete{Object: s.add(aStatefulSet()), Relies: []action.Standing{tt.relied}})
		expect.That(t, errors.Is(err, ErrStale) != tt.holds, "%s: %v", name, err)
	}
}

// The object is read before the list, which costs more, and after it: its status changes meanwhile.
func TestAnApplyIsNotTriedWhenItsObjectChangedBesideTheList(t *testing.T) {
	s, lists := newScene(), 0
	sts := s.add(aStatefulSet())
	s.live.Fail = func(of fakeapi.Name) error {
		if of.Name == "" {
			lists++
			fakeapi.Edit(s.Server, "w", func(sts *appsv1.StatefulSet) { sts.Status.Replicas++ })
		}
		return nil
	}
	s.Requests = nil
	what := action.Apply{Object: &appsv1.StatefulSet{}, Onto: sts, FieldOwner: fieldOwner, Applied: true, Relies: []action.Standing{{Kind: identity.KindPod}}}
	for range 2 { // the second time it changed before
		if _, err := s.Do(t.Context(), what); !errors.Is(err, ErrStale) || len(s.Requests) > 0 || lists != 1 {
			t.Errorf("%v, %d writes, %d lists", err, len(s.Requests), lists)
		}
	}
}

func TestQuiet(t *testing.T) {
	resource := schema.GroupResource{Resource: "statefulsets"}
	invalid := func(field string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Field: field}}},
		}}
	}
	for _, tt := range []struct {
		name  string
		err   error
		stale bool
	}{
		{"none", nil, false},
		{"conflict", apierrors.NewConflict(resource, "w", errors.New("x")), true},
		{"not found", apierrors.NewNotFound(resource, "w"), true},
		{"another uid", invalid("metadata.uid"), true},
		{"another field", invalid("spec.template"), false},
		{"no details", &apierrors.StatusError{}, false},
		{"forbidden", apierrors.NewForbidden(resource, "w", errors.New("x")), false},
		{"a webhook that calls it a conflict", deniedAs(apierrors.NewConflict(resource, "w", nil)), false},
		{"a webhook that finds nothing", deniedAs(apierrors.NewNotFound(resource, "w")), false},
		{"anything else", errors.New("x"), false},
	} {
		got := quiet(tt.err)
		expect.That(t, errors.Is(got, ErrStale) == tt.stale && (tt.err == nil || errors.Is(got, tt.err)),
			"%s: got %v", tt.name, got)
	}
}
