package cluster

import (
	"fmt"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// dump logs the objects and events of the scene, and the end of the operator's log.
func (s *scene) dump() {
	s.Helper()
	if s.recorder == nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "namespace %s\n", s.namespace)
	for _, set := range live[*lwsv1.LeaderWorkerSet](s.recorder) {
		status, _ := yaml.Marshal(set.Status)
		fmt.Fprintf(&b, "%s generation %d\n%s", outline(set), set.Generation, indent(string(status)))
	}
	for _, sts := range live[*appsv1.StatefulSet](s.recorder) {
		fmt.Fprintf(&b, "%s replicas %d of %d, available %d, revision %s → %s\n", outline(sts), sts.Status.Replicas,
			*sts.Spec.Replicas, sts.Status.AvailableReplicas, sts.Status.CurrentRevision, sts.Status.UpdateRevision)
	}
	for _, pod := range live[*corev1.Pod](s.recorder) {
		fmt.Fprintf(&b, "%s %s ready=%t image %s on %q\n", outline(pod), pod.Status.Phase, podReady(pod), imageOf(pod), pod.Spec.NodeName)
	}
	for _, o := range live[*corev1.Service](s.recorder) {
		fmt.Fprintln(&b, outline(o))
	}
	for _, o := range live[*appsv1.ControllerRevision](s.recorder) {
		fmt.Fprintln(&b, outline(o))
	}
	for _, event := range live[*eventsv1.Event](s.recorder) {
		if event.Regarding.Kind == "LeaderWorkerSet" {
			fmt.Fprintf(&b, "Event %s %s %s: %s\n", event.Type, event.Reason, event.Regarding.Name, event.Note)
		}
	}
	fmt.Fprintf(&b, "the operator's last words:\n%s", indent(s.lastWords(30)))
	s.Log(b.String())
}

// outline returns the metadata of an object that matters.
func outline(o client.Object) string {
	text := fmt.Sprintf("%s %s (%s)", strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), o.GetName(), o.GetUID())
	if owner := metav1.GetControllerOf(o); owner != nil {
		text += fmt.Sprintf(" of %s (%s)", owner.Name, owner.UID)
	}
	if o.GetDeletionTimestamp() != nil {
		text += fmt.Sprintf(" DELETED, finalizers %v", o.GetFinalizers())
	}
	return text
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}

// lastWords returns the last lines that the operator logged about the scene.
func (s *scene) lastWords(n int) string {
	log, err := os.ReadFile(bed.operator.Log)
	if err != nil {
		return err.Error()
	}
	var about []string
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, fmt.Sprintf("%q", s.namespace)) {
			about = append(about, line)
		}
	}
	return strings.Join(about[max(0, len(about)-n):], "")
}
