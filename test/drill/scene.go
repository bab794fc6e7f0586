package drill

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
)

// Scene is the namespace of one test, with its recorder.
type Scene struct {
	*testing.T
	*Recorder
	*Bed
	Namespace string
	Audited   int // position of the audit log when the scene began
	Began     time.Time
	uniques   int // unique texts so far
}

// NewScene creates a namespace in which pods can be created, and records it.
func NewScene(t *testing.T, b *Bed) *Scene {
	t.Helper()
	s := &Scene{T: t, Bed: b, Namespace: b.nextNamespace(), Audited: b.Position(), Began: time.Now()}
	s.Create(s.Itself())
	recording, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	recorder, err := record(recording, b.Client, s.Namespace)
	s.Check("record namespace "+s.Namespace, err)
	s.Recorder = recorder
	t.Cleanup(s.strike)
	s.Eventually("the namespace's default service account exists", func() error {
		return s.Client.Get(t.Context(), s.Key("default"), &corev1.ServiceAccount{})
	})
	return s
}

// strike deletes the namespace, so that the next test has the machine for itself.
func (s *Scene) strike() {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	above := s.Client.DeleteAllOf(ctx, &dsv1.DisaggregatedSet{}, client.InNamespace(s.Namespace))
	if meta.IsNoMatchError(above) { // an earlier version has none
		above = nil
	}
	errs := []error{above, s.Client.DeleteAllOf(ctx, &lwsv1.LeaderWorkerSet{}, client.InNamespace(s.Namespace))}
	for _, pod := range s.Pods() {
		if len(pod.Finalizers) > 0 {
			errs = append(errs, s.Client.Patch(ctx, pod.DeepCopy(), Merge(NoFinalizers)))
		}
	}
	if err := errors.Join(append(errs, s.Client.Delete(ctx, s.Itself()))...); client.IgnoreNotFound(err) != nil {
		s.Logf("clear namespace %s: %v", s.Namespace, err)
	}
}

// Itself returns the namespace by its name.
func (s *Scene) Itself() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
}

// Meta names an object of the scene.
func (s *Scene) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.Namespace, Name: name}
}

// Key is the key of an object of the scene.
func (s *Scene) Key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: name}
}

// Unique returns a text that the scene has not used yet.
func (s *Scene) Unique() string { s.uniques++; return fmt.Sprint(s.uniques) }

// Create creates an object. The operator may write in the namespace of a set.
func (s *Scene) Create(o client.Object) {
	switch o.(type) {
	case *lwsv1.LeaderWorkerSet, *dsv1.DisaggregatedSet:
		s.MayWrite(s.Namespace)
	}
	s.Check(fmt.Sprintf("create %T %s", o, o.GetName()), s.Client.Create(s.Context(), o))
}

// Lend creates a cluster-scoped object, and deletes it when the test ends. Another test may have lent one of its name, of
// which the API server still deletes what is left.
func (s *Scene) Lend(o client.Object) {
	s.Eventually(fmt.Sprintf("%T %s is created", o, o.GetName()), func() error { return s.Client.Create(s.Context(), o) })
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), Patience)
		defer cancel()
		if err := s.Client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
			s.Logf("delete %T %s: %v", o, o.GetName(), err)
		}
	})
}

// Remove deletes an object. It works on a copy, because the recorder shares its objects.
func (s *Scene) Remove(o client.Object, options ...client.DeleteOption) {
	o = o.DeepCopyObject().(client.Object)
	s.Check(fmt.Sprintf("delete %T %s", o, o.GetName()), s.Client.Delete(s.Context(), o, options...))
}

// Patch merges a JSON document into an object.
func (s *Scene) Patch(o client.Object, document string) {
	o = o.DeepCopyObject().(client.Object)
	s.Check(fmt.Sprintf("patch %T %s", o, o.GetName()), s.Client.Patch(s.Context(), o, Merge(document)))
}

// PatchStatus merges a JSON document into the status of an object.
func (s *Scene) PatchStatus(o client.Object, document string) {
	o = o.DeepCopyObject().(client.Object)
	s.Check("patch the status of "+o.GetName(), s.Client.Status().Patch(s.Context(), o, Merge(document)))
}

// NoFinalizers is the document that removes all finalizers.
const NoFinalizers = `{"metadata":{"finalizers":null}}`

// Merge returns the merge patch of a JSON document.
func Merge(document string) client.Patch {
	return client.RawPatch(types.MergePatchType, []byte(document))
}

// Get reads an object of the scene, live.
func (s *Scene) Get(name string, into client.Object) error {
	return s.Client.Get(context.WithoutCancel(s.Context()), s.Key(name), into)
}

// Read reads the live state of an object into it.
func (s *Scene) Read(o client.Object) error {
	return s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o)
}

// Eventually waits until lacks returns nil. It calls lacks with every change of the recorder, and
// every 200 ms for what the recorder does not watch.
func (s *Scene) Eventually(what string, lacks func() error) { s.Within(Patience, what, lacks) }

// Within is Eventually with another limit.
func (s *Scene) Within(limit time.Duration, what string, lacks func() error) {
	deadline := time.After(limit)
	for {
		next := s.Next()
		err := lacks()
		if err == nil {
			return
		}
		select {
		case <-next:
		case <-time.After(200 * time.Millisecond):
		case <-s.Context().Done():
			s.Fatalf("%s: %v", what, s.Context().Err())
		case <-deadline:
			s.Fatalf("never came true: %s\nlast: %v", what, err)
		}
	}
}

// Until waits until something holds.
func (s *Scene) Until(what string, holds func() bool) {
	s.Eventually(what, func() error {
		if holds() {
			return nil
		}
		return ErrStill
	})
}

// ErrStill says that something has not happened yet.
var ErrStill = errors.New("not yet")

// Await waits until the recorder has an object of a name for which lacks is nil, and returns it.
func Await[T client.Object](s *Scene, name, what string, lacks func(T) error) (found T) {
	s.Eventually(fmt.Sprintf("%T %s %s", found, name, what), func() error {
		now, ok := Find[T](s.Recorder, name)
		if !ok {
			return fmt.Errorf("it does not exist")
		}
		found = now
		return lacks(now)
	})
	return found
}

// Another waits for another incarnation of an object, and returns it.
func Another[T client.Object](s *Scene, former T) T {
	return Await(s, former.GetName(), "is another one", func(now T) error {
		return Lacking("another one", true, now.GetUID() != former.GetUID())
	})
}

// Check ends the test if err is not nil.
func (s *Scene) Check(what string, err error) {
	expect.OKf(s, err, "%s", what)
}

// Want fails the test if err is not nil, and goes on.
func (s *Scene) Want(what string, err error) {
	expect.That(s, err == nil, "%s: %v", what, err)
}

// Lacking returns an error if want differs from have.
func Lacking[T comparable](what string, want, have T) error {
	if want == have {
		return nil
	}
	return fmt.Errorf("%s: want %v, have %v", what, want, have)
}

// Fatalf ends the test. It reports the lines of test files on the stack, and the objects in the scene.
func (s *Scene) Fatalf(format string, values ...any) {
	s.dump()
	s.T.Fatalf("%s\n%s", fmt.Sprintf(format, values...), lines())
}

// Errorf fails the test. It reports the lines of test files on the stack.
func (s *Scene) Errorf(format string, values ...any) {
	s.T.Errorf("%s\n%s", fmt.Sprintf(format, values...), lines())
}

// lines returns the lines of test files on the stack, the innermost first.
func lines() string {
	callers := make([]uintptr, 40)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	var found []string
	for more := true; more; {
		var f runtime.Frame
		if f, more = frames.Next(); strings.HasSuffix(f.File, "_test.go") {
			found = append(found, fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line))
		}
	}
	return "at " + strings.Join(found, " < ")
}

// dump logs the objects and events of the scene, and the operator's log lines about it.
func (s *Scene) dump() {
	if s.Recorder == nil {
		return
	}
	var b strings.Builder
	for _, rec := range s.Pick(func(r *Record) bool { return r.Died == 0 }) {
		switch o := rec.Last.(type) {
		case *eventsv1.Event:
			fmt.Fprintf(&b, "Event %s %s %s: %s\n", o.Type, o.Reason, o.Regarding.Name, o.Note)
		case *corev1.Pod:
			fmt.Fprintf(&b, "%s %s on %q, image %s, ready %t, gates %v\n", Outline(o), o.Status.Phase, o.Spec.NodeName,
				o.Spec.Containers[0].Image, PodReady(o), o.Spec.SchedulingGates)
		case *lwsv1.LeaderWorkerSet:
			status, _ := yaml.Marshal(o.Status)
			fmt.Fprintf(&b, "%s generation %d\n%s", Outline(o), o.Generation, status)
		default:
			fmt.Fprintln(&b, Outline(o))
		}
	}
	for _, log := range append([]string{s.Operator.Log}, s.Logs...) {
		about := strings.Split(LastLines(log, 4000), "\n")
		about = slices.DeleteFunc(about, func(line string) bool { return !strings.Contains(line, s.Namespace) })
		fmt.Fprintf(&b, "%s about %s:\n%s\n", filepath.Base(log), s.Namespace, strings.Join(about[max(0, len(about)-30):], "\n"))
	}
	s.Log(b.String())
}

// Outline returns an object's type, name, UID, controller and deletion.
func Outline(o client.Object) string {
	text := fmt.Sprintf("%s %s (%s)", strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), o.GetName(), o.GetUID())
	if owner := metav1.GetControllerOf(o); owner != nil {
		text += fmt.Sprintf(" of %s (%s)", owner.Name, owner.UID)
	}
	if o.GetDeletionTimestamp() != nil {
		text += fmt.Sprintf(" DELETED, finalizers %v", o.GetFinalizers())
	}
	return text
}

// PodReady reports whether a pod is ready and not terminating.
func PodReady(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// AwaitEvent waits for an event about an object, with these parts in its action, its related kind
// or its note.
func (s *Scene) AwaitEvent(name, reason string, parts ...string) {
	s.Eventually(fmt.Sprintf("%s has an event %s %v", name, reason, parts), func() error {
		for _, e := range Live[*eventsv1.Event](s.Recorder) {
			text := e.Action + " " + e.Note
			if e.Related != nil {
				text = e.Related.Kind + " " + text
			}
			lacks := func(part string) bool { return !strings.Contains(text, part) }
			if e.Regarding.Name == name && e.Reason == reason && !slices.ContainsFunc(parts, lacks) {
				return nil
			}
		}
		return ErrStill
	})
}

// Events returns the events about an object, of one reason if it is not empty.
func (s *Scene) Events(of client.Object, reason string) []*eventsv1.Event {
	return slices.DeleteFunc(Live[*eventsv1.Event](s.Recorder), func(e *eventsv1.Event) bool {
		return e.Regarding.UID != of.GetUID() || (reason != "" && e.Reason != reason)
	})
}

// LockstepWrote returns the operator's writes in the scene since a position of the audit log.
func (s *Scene) LockstepWrote(since int) []Request {
	s.Check("read the audit log", s.Audit.Sync())
	return s.Audit.Kept(since, func(r Request) bool { return IsWrite(r) && ByLockstep(r) && r.Namespace == s.Namespace })
}

// RestartOperator kills the operator and starts it with flags.
func (s *Scene) RestartOperator(flags ...string) {
	s.Check("restart the operator", errors.Join(s.Operator.Kill(), s.Operator.Start(flags...)))
}

// Plugin runs kubectl-lockstep in the namespace.
func (s *Scene) Plugin(in string, args ...string) (out, errOut string, err error) {
	return s.PluginOn(s.Plane, in, args...)
}

// PluginOn is Plugin on another control plane.
func (s *Scene) PluginOn(plane *Plane, in string, args ...string) (out, errOut string, err error) {
	path, err := Program("kubectl-lockstep")
	s.Check("find the plugin", err)
	cmd := exec.CommandContext(s.Context(), path, append([]string{"-n", s.Namespace, "--kubeconfig", plane.Kubeconfig()}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// EndedTogether checks that each pod was deleted before the first of them was gone.
func (s *Scene) EndedTogether(pods []Record) {
	first := slices.MinFunc(pods, func(a, b Record) int { return a.Died - b.Died })
	for _, rec := range pods {
		expect.That(s, rec.Deleted != 0 && first.Died != 0 && rec.Deleted <= first.Died,
			"pod %s was not deleted before pod %s was gone", rec.Last.GetName(), first.Last.GetName())
	}
}

// Finalizers and keys of the protection of PVCs.
const (
	PodProtection = "kubernetes.io/pvc-protection"
	Barrier       = "protection.lockstep.dev/barrier"
	Foreign       = "example.com/keep"
	modeKey       = "protection.lockstep.dev/mode"
	releaseKey    = "protection.lockstep.dev/release"
	usersKey      = "protection.lockstep.dev/used-by"
)

// PVCs returns the PVCs of the scene by name, terminating ones too.
func (s *Scene) PVCs() (map[string]*corev1.PersistentVolumeClaim, error) {
	list := &corev1.PersistentVolumeClaimList{}
	if err := s.Client.List(context.WithoutCancel(s.Context()), list, client.InNamespace(s.Namespace)); err != nil {
		return nil, err
	}
	found := map[string]*corev1.PersistentVolumeClaim{}
	for i := range list.Items {
		found[list.Items[i].Name] = &list.Items[i]
	}
	return found, nil
}

// Claims returns the PVCs of the scene, and ends the test if they cannot be read.
func (s *Scene) Claims() map[string]*corev1.PersistentVolumeClaim {
	found, err := s.PVCs()
	s.Check("list PVCs", err)
	return found
}

// AwaitPVC waits until a PVC exists for which lacks is nil, and returns it.
func (s *Scene) AwaitPVC(name, what string, lacks func(*corev1.PersistentVolumeClaim) error) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	s.Eventually("PVC "+name+" "+what, func() error {
		claim = &corev1.PersistentVolumeClaim{}
		if err := s.Get(name, claim); err != nil {
			return err
		}
		return lacks(claim)
	})
	return claim
}

// PVC waits until a PVC exists, and returns it.
func (s *Scene) PVC(name string) *corev1.PersistentVolumeClaim {
	return s.AwaitPVC(name, "exists", func(*corev1.PersistentVolumeClaim) error { return nil })
}

// AwaitGone waits until an incarnation of a PVC is gone.
func (s *Scene) AwaitGone(claim *corev1.PersistentVolumeClaim) {
	s.Eventually("PVC "+claim.Name+" is gone", func() error {
		now := &corev1.PersistentVolumeClaim{}
		err := s.Get(claim.Name, now)
		if apierrors.IsNotFound(err) || err == nil && now.UID != claim.UID {
			return nil
		}
		return errors.Join(err, fmt.Errorf("deleted %v, finalizers %v, annotations %v", now.DeletionTimestamp, now.Finalizers, now.Annotations))
	})
}

// AwaitFinalizers waits until an object has exactly these finalizers, in any order.
func (s *Scene) AwaitFinalizers(o client.Object, want ...string) {
	slices.Sort(want)
	s.Eventually(fmt.Sprintf("%s has finalizers %v", o.GetName(), want), func() error {
		now := o.DeepCopyObject().(client.Object)
		err := s.Read(now)
		return errors.Join(err, Lacking("UID", o.GetUID(), now.GetUID()),
			Lacking("finalizers", fmt.Sprint(want), fmt.Sprint(slices.Sorted(slices.Values(now.GetFinalizers())))))
	})
}

// IsProtected reports whether a PVC has both finalizers.
func IsProtected(claim *corev1.PersistentVolumeClaim) bool {
	return slices.Contains(claim.Finalizers, PodProtection) && slices.Contains(claim.Finalizers, Barrier)
}

// Released returns the patch that releases a PVC or namespace, so that it may be deleted.
func Released(o client.Object) client.Patch {
	return Merge(fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, releaseKey, o.GetUID()))
}

// SetMode sets the mode of the namespace. It releases the namespace when the test ends, so that
// held PVCs do not keep it.
func (s *Scene) SetMode(mode string) {
	s.MayWrite(s.Namespace)
	s.Patch(s.Itself(), fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, modeKey, mode))
	s.Cleanup(func() {
		itself, ctx := s.Itself(), context.Background()
		if s.Client.Get(ctx, client.ObjectKeyFromObject(itself), itself) == nil {
			_ = s.Client.Patch(ctx, itself, Released(itself))
		}
	})
}

// WantRecorded checks that PVCs have the use record of a pod.
func (s *Scene) WantRecorded(pod *corev1.Pod, claims ...string) {
	for _, name := range claims {
		s.Check("PVC "+name, Lacking("use record", pod.Name+"="+string(pod.UID), s.PVC(name).Annotations[usersKey]))
	}
}

// IsGated returns an error unless a pod exists, has a scheduling gate, and has no node.
func (s *Scene) IsGated(name string) error {
	pod := s.Pod(name)
	if pod == nil {
		return ErrStill
	}
	if len(pod.Spec.SchedulingGates) == 0 || pod.Spec.NodeName != "" {
		return fmt.Errorf("gates %v, node %q", pod.Spec.SchedulingGates, pod.Spec.NodeName)
	}
	return nil
}
