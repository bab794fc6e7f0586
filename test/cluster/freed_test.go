package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/test/drill"
)

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
	{"a pod on a node that is lost", 1, func(s *scene, _ corev1.PodTemplateSpec) {
		node := s.lostNode()
		s.user("stranded", []string{"used"}, func(pod *corev1.Pod) { pod.Spec.NodeName = node })
	}},
	{"a deployment of three", 1, func(s *scene, template corev1.PodTemplateSpec) {
		s.create(&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "web"},
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template,
			},
		})
		s.awaitPhase(3, corev1.PodRunning)
	}},
	{"a job that has finished", 1, func(s *scene, template corev1.PodTemplateSpec) {
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "train"},
			Spec:       batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(2)), Template: template},
		}
		s.create(job)
		s.awaitPhase(2, corev1.PodSucceeded)
		s.eventually("the job is complete", func() error {
			if err := s.client.Get(s.Context(), keyOf(job), job); err != nil {
				return err
			}
			return lacking("completion", true, job.Status.CompletionTime != nil)
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
			s.remove(claim)
			s.stays(claim)
			deeds := s.deeds("used")
			if len(deeds) != tt.deeds {
				t.Fatalf("%d deeds are named, and %d do: %q", len(deeds), tt.deeds, deeds)
			}
			for i, deed := range deeds {
				if i > 0 {
					s.stays(claim)
				}
				s.shell(deed)
			}
			s.awaitGone(claim)
		})
	}
}

// deeds returns the commands that why names to free a PVC.
func (s *scene) deeds(claim string) []string {
	s.Helper()
	out, errOut, err := s.plugin("", "why", "pvc/"+claim, "-o", "json")
	if err != nil {
		s.Fatalf("why: %v\n%s", err, errOut)
	}
	var told struct {
		Actions []struct{ Do, Command string }
	}
	if err := json.Unmarshal([]byte(out), &told); err != nil {
		s.Fatalf("why: %v in\n%s", err, out)
	}
	var commands []string
	for _, a := range told.Actions {
		if a.Command == "" {
			s.Fatalf("no command does this: %s", a.Do)
		}
		commands = append(commands, a.Command)
	}
	return commands
}

// shell runs a command in a shell that finds kubectl.
func (s *scene) shell(command string) {
	s.Helper()
	local, err := drill.Program("lockstep-local")
	s.check("find kubectl", err)
	dir := s.TempDir()
	s.check("make kubectl", os.WriteFile(filepath.Join(dir, "kubectl"), fmt.Appendf(nil, "#!/bin/sh\nexec '%s' kubectl \"$@\"\n", local), 0o700)) //nolint:gosec // it is run
	cmd := exec.CommandContext(s.Context(), "/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "KUBECONFIG="+bed.plane.Kubeconfig())
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// lostNode creates a node without a kubelet.
func (s *scene) lostNode() string {
	s.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "z-" + s.namespace}} // the last of all, so that nobody else picks it
	s.create(node)
	s.Cleanup(func() {
		if err := s.client.Delete(context.WithoutCancel(s.Context()), node); err != nil {
			s.Errorf("delete node %s: %v", node.Name, err)
		}
	})
	s.check("lose the node", s.client.Status().Patch(s.Context(), node.DeepCopy(), merge(`{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`)))
	return node.Name
}
