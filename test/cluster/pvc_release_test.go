package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"lockstep.dev/lockstep/test/drill"
)

const volumeProtection = "kubernetes.io/pv-protection"

const aloneConfiguration = `
apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
protection:
  alone: true
`

// withoutBuiltIn turns off the built-in protection of PVCs and volumes until the test ends. The
// operator takes its place.
func withoutBuiltIn(t *testing.T) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "alone.yaml")
	must(t, os.WriteFile(file, []byte(aloneConfiguration), 0o600))
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
	if slices.Contains(bare.Finalizers, podProtection) {
		t.Fatalf("invalid run: without us a claim has %v", bare.Finalizers)
	}
	must(t, errors.Join(bed.Operator.Start("--config", file), bed.Client.Delete(t.Context(), bare)))
}

// TestClaimsInPlaceOfTheBuiltIn shows every behaviour without the built-in controller. The operator
// adds and removes both finalizers.
func TestClaimsInPlaceOfTheBuiltIn(t *testing.T) {
	withoutBuiltIn(t)
	t.Run("claims", showBehaviours)
	t.Run("volumes", func(t *testing.T) {
		s := asideScene(t)
		bed.MayWrite("") // volumes are in no namespace
		volume := &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: s.Namespace, Finalizers: []string{foreign}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/nowhere"}},
				ClaimRef:                      &corev1.ObjectReference{Namespace: s.Namespace, Name: "data"},
			},
		}
		s.Create(volume)
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
	if len(left) <= len(used) {
		t.Fatalf("invalid run: only %d claims were left when the operator was killed", len(left))
	}
	s.Eventually("only what is used is left", func() error {
		left, err := s.PVCs()
		return errors.Join(err, drill.Lacking("claims", len(used), len(left)))
	})
	left = s.Claims()
	for name, uid := range used {
		if left[name] == nil || left[name].UID != uid {
			t.Errorf("claim %s is lost under its pod", name)
		}
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
	use   func(*scene, corev1.PodTemplateSpec)
}{
	{"a pod by itself", 1, func(s *scene, _ corev1.PodTemplateSpec) { s.user("one", []string{"used"}) }},
	{"two pods", 2, func(s *scene, _ corev1.PodTemplateSpec) {
		s.user("one", []string{"used"})
		s.user("two", []string{"used"})
	}},
	{"a pod on a node without a kubelet", 1, func(s *scene, _ corev1.PodTemplateSpec) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z-" + s.Namespace}} // the last name, so that no other drill picks it
		s.Lend(node)
		s.PatchStatus(node, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)
		s.user("stranded", []string{"used"}, func(pod *corev1.Pod) { pod.Spec.NodeName = node.Name })
	}},
	{"a deployment of three", 1, func(s *scene, template corev1.PodTemplateSpec) {
		s.Create(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
			},
		})
		s.awaitPhase(3, corev1.PodRunning)
	}},
	{"a job that has finished", 1, func(s *scene, template corev1.PodTemplateSpec) {
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "train"},
			Spec:       batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(2)), Template: template},
		}
		s.Create(job)
		s.awaitPhase(2, corev1.PodSucceeded)
		s.Eventually("the job is complete", func() error {
			if err := s.Read(job); err != nil {
				return err
			}
			return drill.Lacking("completion", true, job.Status.CompletionTime != nil)
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
			spec := s.newUser("", []string{"used"}).Spec
			spec.NodeName = s.aNode() // nothing binds the claim: no scheduler would
			tt.use(s, corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"drill": "freed"}}, Spec: spec})
			s.Remove(claim)
			s.stays(claim)
			deeds := s.ask("", "why", "pvc/used").Actions
			if len(deeds) != tt.deeds {
				t.Fatalf("%d deeds are named, and %d do: %q", len(deeds), tt.deeds, deeds)
			}
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
