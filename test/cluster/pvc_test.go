package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/expect"
)

const (
	podProtection = drill.PodProtection
	barrier       = drill.Barrier
	foreign       = drill.Foreign
)

// force deletes an object at once.
const force = client.GracePeriodSeconds(0)

// newClaim returns a PVC without a StorageClass.
func newClaim(namespace, name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{Spec: drill.ClaimSpec()}
	claim.Namespace, claim.Name = namespace, name
	claim.Finalizers, claim.Spec.StorageClassName = finalizers, new(string)
	return claim
}

func (s *scene) newClaim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	return newClaim(s.Namespace, name, finalizers...)
}

// claim creates a PVC and waits for its finalizers.
func (s *scene) claim(name string, finalizers ...string) *corev1.PersistentVolumeClaim {
	s.MayWrite(s.Namespace)
	claim := s.newClaim(name, finalizers...)
	s.Create(claim)
	s.awaitProtected(name)
	return claim
}

// classClaim creates a PVC of a StorageClass.
func (s *scene) classClaim(name, class string, finalizers ...string) {
	s.MayWrite(s.Namespace)
	claim := s.newClaim(name, finalizers...)
	claim.Spec.StorageClassName = &class
	s.Create(claim)
}

// awaitProtected waits until PVCs have both finalizers.
func (s *scene) awaitProtected(names ...string) {
	s.Eventually("PVCs are protected", func() error {
		found, err := s.PVCs()
		for _, name := range names {
			if claim := found[name]; claim == nil || !drill.IsProtected(claim) {
				err = errors.Join(err, fmt.Errorf("PVC %s lacks finalizers", name))
			}
		}
		return err
	})
}

// A podEdit changes a pod before it is created.
type podEdit func(*corev1.Pod)

// newUser returns a pod that uses PVCs, without a node.
func (s *scene) newUser(name string, claims []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: s.Meta(name), Spec: template(imageA).Spec}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, drill.ClaimVolume(claim, claim))
	}
	return pod
}

// user creates a pod on a node that uses PVCs.
func (s *scene) user(name string, claims []string, edits ...podEdit) *corev1.Pod {
	pod := s.newUser(name, claims)
	pod.Spec.NodeName, pod.Spec.TerminationGracePeriodSeconds = s.aNode(), new(int64(1))
	for _, edit := range edits {
		edit(pod)
	}
	s.Create(pod)
	return pod
}

// aNode returns the name of a node.
func (s *scene) aNode() string {
	nodes := &corev1.NodeList{}
	s.Check("list nodes", s.Client.List(s.Context(), nodes, client.Limit(1)))
	return nodes.Items[0].Name
}

func pinned(pod *corev1.Pod) { pod.Finalizers = []string{foreign} }

// by leaves a pod to a scheduler.
func by(scheduler string) podEdit {
	return func(pod *corev1.Pod) { pod.Spec.NodeName, pod.Spec.SchedulerName = "", scheduler }
}

// awaitPhase waits until so many pods are in a phase.
func (s *scene) awaitPhase(n int, phase corev1.PodPhase) {
	s.Eventually(fmt.Sprintf("%d pods are %s", n, phase), func() error {
		in := slices.DeleteFunc(s.Pods(), func(pod *corev1.Pod) bool { return pod.Status.Phase != phase })
		return drill.Lacking("pods", n, len(in))
	})
}

// outlastClaim returns when the operator has released a PVC that was deleted now. It has then
// read all PVCs that were deleted before.
func (s *scene) outlastClaim() {
	witness := s.claim("witness-" + s.Unique())
	s.Remove(witness)
	s.AwaitGone(witness)
}

// stays checks that the operator keeps both finalizers of a terminating PVC.
func (s *scene) stays(claim *corev1.PersistentVolumeClaim) {
	s.outlastClaim()
	found := s.Claims()
	if now := found[claim.Name]; now == nil || now.UID != claim.UID || now.DeletionTimestamp == nil || !drill.IsProtected(now) {
		s.Fatalf("PVC %s is %+v", claim.Name, now)
	}
}

// awaitBarrier waits until a PVC has the barrier, or does not have it.
func (s *scene) awaitBarrier(name string, want bool) {
	s.AwaitPVC(name, fmt.Sprintf("has the barrier: %t", want), func(claim *corev1.PersistentVolumeClaim) error {
		return drill.Lacking("barrier", want, slices.Contains(claim.Finalizers, barrier))
	})
}

// let removes the foreign finalizer of an object, if the object is there.
func (s *scene) let(o client.Object) {
	s.Eventually(o.GetName()+" is let go", func() error {
		now := o.DeepCopyObject().(client.Object)
		if err := s.Read(now); err != nil {
			return client.IgnoreNotFound(err)
		}
		now.SetFinalizers(slices.DeleteFunc(now.GetFinalizers(), func(f string) bool { return f == foreign }))
		return client.IgnoreNotFound(s.Client.Update(s.Context(), now))
	})
}

// vanish removes the foreign finalizer of a terminating PVC and waits until the PVC is gone.
func (s *scene) vanish(claim *corev1.PersistentVolumeClaim) {
	s.let(claim)
	s.AwaitGone(claim)
}

// behaviours are what happens to a deleted PVC: those of the built-in controller, which the
// operator has too, beside it and in its place.
var behaviours = []struct {
	name string
	show func(*scene)
}{
	{"not in use", func(s *scene) {
		claim := s.claim("free")
		s.Remove(claim)
		s.AwaitGone(claim)
	}},
	{"a bound pod uses it", func(s *scene) { s.usedUntil(nil, func(pod *corev1.Pod) { s.Remove(pod) }) }},
	{"an unbound pod uses it", func(s *scene) {
		claim := s.claim("named")
		s.user("waiting", []string{"named"}, by("nobody"))
		s.Remove(claim)
		s.AwaitGone(claim)
	}},
	{"a pod that has finished uses it", func(s *scene) {
		s.usedUntil(func(pod *corev1.Pod) {
			s.PatchStatus(pod, `{"status":{"phase":"Succeeded","containerStatuses":null}}`)
			s.awaitPhase(1, corev1.PodSucceeded)
		}, func(pod *corev1.Pod) { s.Remove(pod) })
	}},
	{"a pod that is being deleted uses it", func(s *scene) {
		s.usedUntil(func(pod *corev1.Pod) { s.Remove(pod) }, func(pod *corev1.Pod) { s.let(pod) }, pinned)
	}},
	{"a pod that was deleted by force uses it", func(s *scene) {
		s.usedUntil(func(pod *corev1.Pod) { s.Remove(pod, force) }, func(pod *corev1.Pod) { s.let(pod) }, pinned)
	}},
	{"a pod on the network of its node uses it", func(s *scene) {
		s.usedUntil(nil, func(pod *corev1.Pod) { s.Remove(pod, force) }, func(pod *corev1.Pod) { pod.Spec.HostNetwork = true })
	}},
	{"a pod uses it for itself alone", ephemeral},
	{"a pod took the name of another that used it", func(s *scene) {
		s.usedUntil(nil, func(pod *corev1.Pod) {
			s.Remove(pod, force)
			s.user(pod.Name, nil)
		})
	}},
	{"one pod uses two claims, and another one is free", func(s *scene) {
		a, b, free := s.claim("a"), s.claim("b"), s.claim("free")
		pod := s.user("user", []string{"a", "b"})
		s.Remove(a)
		s.Remove(free)
		s.AwaitGone(free)
		s.stays(a)
		s.Remove(pod, force)
		s.AwaitGone(a)
		s.Remove(b)
		s.AwaitGone(b)
	}},
	{"others have finalizers on it, in any order", func(s *scene) {
		for i, order := range [][]string{
			{foreign, podProtection, barrier}, {barrier, foreign, podProtection},
			{podProtection, foreign}, {barrier, podProtection, foreign},
		} {
			claim := s.claim(fmt.Sprint("order-", i), order...)
			s.Remove(claim)
			s.AwaitFinalizers(claim, foreign)
			s.vanish(claim)
		}
	}},
	{"a pod slipped in", slippedIn},
	{"modes are chosen", chosenModes},
	{"it changes all the time", func(s *scene) {
		claim := s.claim("restless")
		s.Remove(claim)
		s.Eventually("it is gone", func() error {
			err := s.Client.Patch(s.Context(), s.newClaim("restless"), drill.Merge(fmt.Sprintf(`{"metadata":{"annotations":{"example.com/beat":%q}}}`, s.Unique())))
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, drill.ErrStill)
		})
	}},
}

// usedUntil deletes a PVC that a running pod uses, then does something with the pod. The PVC stays until
// the end of the pod.
func (s *scene) usedUntil(then, end func(*corev1.Pod), edits ...podEdit) {
	claim, pod := s.claim("used"), s.user("user", []string{"used"}, edits...)
	s.awaitPhase(1, corev1.PodRunning)
	s.Remove(claim)
	if then != nil {
		then(pod)
	}
	s.stays(claim)
	s.AwaitEvent(claim.Name, "DeletionPostponed", "user")
	end(pod)
	s.AwaitGone(claim)
	s.AwaitEvent(claim.Name, "DeletionReleased")
}

// ephemeral: a PVC of an ephemeral volume has no barrier, and its pod holds it.
func ephemeral(s *scene) {
	bed.MayWrite(s.Namespace)
	spec := s.newClaim("").Spec
	pod := s.user("user", nil, pinned, func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: spec}},
		}}}
	})
	claim := s.PVC("user-scratch")
	s.AwaitFinalizers(claim, podProtection)
	s.Remove(claim)
	s.outlastClaim()
	s.AwaitFinalizers(claim, podProtection)
	s.Remove(pod, force) // a finalizer keeps the pod: were that to hold, neither would go
	s.AwaitGone(claim)
	s.let(pod)
}

// slippedIn: a pod runs on a PVC that lost its pod protection. The barrier keeps the data, and an
// event reports it.
func slippedIn(s *scene) {
	claim, pod := s.claim("used"), s.user("slipped", []string{"used"})
	s.Remove(claim)
	s.stays(claim)
	s.Patch(claim, fmt.Sprintf(`{"metadata":{"finalizers":[%q]}}`, barrier))
	s.AwaitEvent("used", "UsedWithoutProtection", "slipped")
	s.AwaitFinalizers(claim, barrier)
	s.Remove(pod, force)
	s.AwaitGone(claim)
}

// chosenModes: namespaces and PVCs choose their mode at any time.
func chosenModes(s *scene) {
	claim := s.claim("data")
	s.SetMode("off")
	s.awaitBarrier("data", false)
	s.annotate(claim, pvc.ModeKey, "barrier")
	s.awaitBarrier("data", true)
	s.annotate(claim, pvc.ModeKey, "observe")
	s.awaitBarrier("data", false)
	pod := s.user("user", []string{"data"})
	s.Remove(claim)
	s.AwaitEvent("data", "DeletionPostponed", "user")
	s.Remove(pod, force)
	s.AwaitGone(claim)
	s.Create(s.newClaim("later"))
	s.Patch(s.Itself(), fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, pvc.ModeKey))
	s.awaitBarrier("later", true)
}

// TestClaimsBesideTheBuiltIn shows every behaviour beside the built-in controller.
func TestClaimsBesideTheBuiltIn(t *testing.T) { showBehaviours(t) }

func showBehaviours(t *testing.T) {
	for _, b := range behaviours {
		t.Run(b.name, func(t *testing.T) { b.show(asideScene(t)) })
	}
}

const volumeProtection = "kubernetes.io/pv-protection"

// withoutBuiltIn turns off the built-in protection of PVCs and volumes until the test ends. The
// operator takes its place.
func withoutBuiltIn(t *testing.T) {
	t.Helper()
	become := func(plugins, controllers string) error {
		return errors.Join(
			bed.Operator.Kill(),
			bed.Plane.Restart(apiServer, "--disable-admission", plugins),
			bed.Plane.Restart(controllerManager, "--kcm-controllers", controllers),
			bed.Plane.Restart(scheduler))
	}
	t.Cleanup(func() { must(t, errors.Join(become("", "*"), bed.Operator.Start())) })
	must(t, become("StorageObjectInUseProtection", "*,-persistentvolumeclaim-protection-controller,-persistentvolume-protection-controller"))
	bare := newClaim(metav1.NamespaceDefault, "bare")
	must(t, bed.Client.Create(t.Context(), bare))
	bed.MayWrite(bare.Namespace)
	expect.Must(t, !slices.Contains(bare.Finalizers, podProtection),
		"invalid run: without us a claim has %v", bare.Finalizers)
	must(t, errors.Join(bed.Operator.Start(configured(t, "protection: {alone: true}\n")...), bed.Client.Delete(t.Context(), bare)))
}

// TestClaimsInPlaceOfTheBuiltIn shows every behaviour without the built-in controller. The operator
// adds and removes both finalizers.
func TestClaimsInPlaceOfTheBuiltIn(t *testing.T) {
	withoutBuiltIn(t)
	t.Run("claims", showBehaviours)
	t.Run("volumes", func(t *testing.T) {
		s := asideScene(t)
		bed.MayWrite("") // volumes are in no namespace
		s.lendManifest("claimed")
		volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace}}
		s.Check("read the volume", s.Read(volume))
		s.AwaitFinalizers(volume, foreign, volumeProtection)
		claim := s.newClaim("data")
		claim.Spec.VolumeName = volume.Name
		s.Create(claim)
		s.Eventually("the volume is bound", func() error {
			return errors.Join(s.Read(volume), drill.Lacking("phase", corev1.VolumeBound, volume.Status.Phase))
		})
		s.Remove(volume)
		s.awaitProtected("data")
		s.outlastClaim()
		s.AwaitFinalizers(volume, foreign, volumeProtection)
		s.Remove(claim)
		s.AwaitGone(claim)
		s.AwaitFinalizers(volume, foreign)
		s.let(volume)
	})
	t.Run("a condition that the built-in controller wrote", func(t *testing.T) {
		s := asideScene(t)
		claim := s.claim("unused")
		s.Check("write conditions", s.Client.Status().Patch(t.Context(), claim, drill.Merge(
			`{"status":{"conditions":[{"type":"Unused","status":"True"},{"type":"Resizing","status":"True"}]}}`)))
		s.Eventually("the operator removes the condition", func() error {
			return errors.Join(s.Read(claim), drill.Lacking("conditions", 1, len(claim.Status.Conditions)))
		})
		same(t, "the condition that stays", "Resizing", string(claim.Status.Conditions[0].Type))
	})
}

// TestManyClaimsAreReleasedOverAKill kills the operator while it releases hundreds of PVCs, some of
// them in use.
func TestManyClaimsAreReleasedOverAKill(t *testing.T) {
	const every = 25 // one in so many is used
	many := 500
	if soak() {
		many = 5000
	}
	s := newScene(t)
	bed.MayWrite(s.Namespace)
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprint("claim-", i)
	}
	s.Check("create PVCs", drill.Together(names, func(name string) error { return s.Client.Create(t.Context(), s.newClaim(name)) }))
	s.awaitProtected(names...)
	before := s.Claims()
	var pods []*corev1.Pod
	used := map[string]types.UID{}
	for i := 0; i < many; i += every {
		pods = append(pods, s.user(fmt.Sprint("user-", i), []string{names[i]}))
		used[names[i]] = before[names[i]].UID
	}
	s.Check("delete all claims", drill.Together(names, func(name string) error { return s.Client.Delete(t.Context(), s.newClaim(name)) }))
	s.Eventually("a part is released", func() error {
		left, err := s.PVCs()
		if n := len(left); err != nil || n > many-every || n <= len(used)+every {
			return errors.Join(err, fmt.Errorf("%d are left", n))
		}
		return nil
	})
	s.Check("kill the operator", bed.Operator.Kill())
	left := s.Claims()
	s.Check("start the operator", bed.Operator.Start())
	expect.Must(t, len(left) > len(used), "invalid run: only %d claims were left when the operator was killed", len(left))
	s.Eventually("only what is used is left", func() error {
		left, err := s.PVCs()
		return errors.Join(err, drill.Lacking("claims", len(used), len(left)))
	})
	left = s.Claims()
	for name, uid := range used {
		expect.That(t, left[name] != nil && left[name].UID == uid, "claim %s is lost under its pod", name)
	}
	for _, pod := range pods {
		s.Remove(pod, force)
	}
	s.awaitClaims("all are gone", nil)
}

// uses are ways to use a PVC, with the number of steps that end each.
var uses = []struct {
	name  string
	deeds int
	use   func(*scene)
}{
	{"a pod by itself", 1, func(s *scene) { s.user("one", []string{"used"}) }},
	{"two pods", 2, func(s *scene) {
		s.user("one", []string{"used"})
		s.user("two", []string{"used"})
	}},
	{"a pod on a node without a kubelet", 1, func(s *scene) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z-" + s.Namespace}} // the last name, so that no other drill picks it
		s.Lend(node)
		s.PatchStatus(node, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)
		s.user("stranded", []string{"used"}, func(pod *corev1.Pod) { pod.Spec.NodeName = node.Name })
	}},
	{"a deployment of three", 1, func(s *scene) {
		s.lendManifest("web", "NODE", s.aNode()) // nothing binds the claim: no scheduler would
		s.awaitPhase(3, corev1.PodRunning)
	}},
	{"a job that has finished", 1, func(s *scene) {
		s.lendManifest("train", "NODE", s.aNode())
		s.awaitPhase(2, corev1.PodSucceeded)
		s.Eventually("the job is complete", func() error {
			job := &batchv1.Job{}
			return errors.Join(s.Get("train", job), drill.Lacking("completion", true, job.Status.CompletionTime != nil))
		})
	}},
}

// TestWhatWhyNamesFreesTheClaim runs the commands that why names for a terminating PVC, and nothing
// else. The PVC goes after the last one.
func TestWhatWhyNamesFreesTheClaim(t *testing.T) {
	for _, tt := range uses {
		t.Run(tt.name, func(t *testing.T) {
			s := asideScene(t)
			claim := s.claim("used")
			tt.use(s)
			s.Remove(claim)
			s.stays(claim)
			deeds := s.ask("", "why", "pvc/used").Actions
			expect.Must(t, len(deeds) == tt.deeds, "%d deeds are named, and %d do: %q", len(deeds), tt.deeds, deeds)
			for i, deed := range deeds {
				if i > 0 {
					s.stays(claim)
				}
				s.shell(deed.Command)
			}
			s.AwaitGone(claim)
		})
	}
}

// shell runs a command in a shell that finds kubectl.
func (s *scene) shell(command string) {
	s.Check("a command does it", drill.Lacking("named", true, command != ""))
	local, err := drill.Program("lockstep-local")
	s.Check("find kubectl", err)
	dir := s.TempDir()
	s.Check("make kubectl", os.WriteFile(filepath.Join(dir, "kubectl"), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' kubectl \"$@\"\n", local), 0o700)) //nolint:gosec // it is run
	cmd := exec.CommandContext(s.Context(), "/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+bed.Plane.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", command, err, out)
	}
}
