package stages

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
	"sigs.k8s.io/kwok/pkg/utils/lifecycle"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/test/expect"
)

// lifecycleOf loads the stages as kwok does, for one kind.
func lifecycleOf(t *testing.T, stages, kind string) lifecycle.Lifecycle {
	t.Helper()
	text := expect.Value(Config(stages))(t)
	path := filepath.Join(t.TempDir(), "kwok.yaml")
	expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
	objects := expect.Value(config.Load(context.Background(), path))(t)
	var ofKind []*internalversion.Stage
	for _, stage := range config.FilterWithType[*internalversion.Stage](objects) {
		if stage.Spec.ResourceRef.Kind == kind {
			ofKind = append(ofKind, stage)
		}
	}
	result, err := lifecycle.NewLifecycle(ofKind)
	expect.Must(t, err == nil && len(result) > 0, "%d stages for %s, %v", len(result), kind, err)
	return result
}

// possible returns the names of the stages that match. There must be at most one: kwok picks one
// of several at random.
func possible(t *testing.T, l lifecycle.Lifecycle, event *lifecycle.Event) string {
	t.Helper()
	stages := expect.Value(l.ListAllPossible(context.Background(), event))(t)
	names := make([]string, len(stages))
	for i, stage := range stages {
		names[i] = stage.Name()
	}
	return strings.Join(names, " ")
}

func newPod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	expect.OK(t, yaml.UnmarshalStrict([]byte(text), pod))
	pod.Name, pod.Namespace, pod.UID = "p", "default", "6e8-uid"
	return pod
}

func podEvent(pod *corev1.Pod) *lifecycle.Event {
	return &lifecycle.Event{Labels: pod.Labels, Annotations: pod.Annotations, Data: pod}
}

const (
	running = "{status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}"
	deleted = "deletionTimestamp: '2026-01-01T00:00:00Z'"
)

func TestPodStages(t *testing.T) {
	const (
		pending = "{spec: {nodeName: n}, status: {phase: Pending}}"
		hangs   = ", annotations: {local.lockstep.dev/hang-on-delete: 'true'}}, status: {phase: Running}}"
		later   = "{metadata: {annotations: {local.lockstep.dev/ready-after: 2m}}, status: {phase: Running, conditions: [{type: Ready, status: 'False', reason: ContainersNotReady}]}}"
		ofJob   = "ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u}]}, status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}"
		gated   = "{spec: {readinessGates: [{conditionType: leaderworkerset.sigs.k8s.io/group-ready}]}, status: {phase: Running, conditions: [" +
			"{type: leaderworkerset.sigs.k8s.io/group-ready, status: '%s'}, {type: ContainersReady, status: 'True'}, {type: Ready, status: '%s'}]}}"
		ends = "{metadata: {" + deleted + ", deletionGracePeriodSeconds: 30"
	)
	lifecycles := map[string]lifecycle.Lifecycle{Guarded: lifecycleOf(t, Guarded, "Pod"), Stock: lifecycleOf(t, Stock, "Pod")}
	for _, c := range []struct {
		name, stages, pod, want string
		after                   time.Duration
	}{
		{"not scheduled", Guarded, "{status: {phase: Pending}}", "", 0},
		{"scheduled", Guarded, pending, "pod-run", 0},
		{"runs", Guarded, running, "", 0},
		{"failed", Guarded, "{spec: {nodeName: n}, status: {phase: Failed}}", "", 0},
		{"to be ready later", Guarded, later, "pod-ready", 2 * time.Minute},
		{"made unready by a user", Guarded, strings.Replace(later, "ContainersNotReady", "Drill", 1), "", 0},
		{"whose group is ready", Guarded, fmt.Sprintf(gated, "True", "False"), "pod-gate-ready", 0},
		{"whose group is ready, as it is", Guarded, fmt.Sprintf(gated, "True", "True"), "", 0},
		{"whose group is not ready", Guarded, fmt.Sprintf(gated, "False", "True"), "pod-gate-unready", 0},
		{"whose group is not ready, nor is it", Guarded, fmt.Sprintf(gated, "False", "False"), "", 0},
		{"of a job", Guarded, "{metadata: {" + ofJob, "pod-complete", 0},
		{"deleted", Guarded, ends + "}, status: {phase: Running}}", "pod-vanish", 0},
		{"deleted before it ran", Guarded, ends + "}, spec: {nodeName: n}, status: {phase: Pending}}", "pod-vanish", 0},
		{"deleted, of a job", Guarded, ends + ", " + ofJob, "pod-vanish", 0},
		{"held by a finalizer", Guarded, "{metadata: {" + deleted + ", deletionGracePeriodSeconds: 0, finalizers: [example.com/f]}, status: {phase: Running}}", "", 0},
		{"hangs", Guarded, ends + hangs, "", 0},
		{"the hang is switched off", Guarded, ends + strings.Replace(hangs, "true", "false", 1), "pod-vanish", 0},
		{"vanishes later", Guarded, "{metadata: {" + deleted + ", annotations: {local.lockstep.dev/vanish-after: 90s}}, status: {phase: Running}}", "pod-vanish", 90 * time.Second},

		{"scheduled", Stock, pending, "pod-ready", 0},
		{"runs", Stock, running, "", 0},
		{"deleted", Stock, "{metadata: {" + deleted + "}, status: {phase: Running}}", "pod-delete", 0},
		{"deleted, with our annotations", Stock, "{metadata: {" + deleted + hangs, "pod-delete", 0},
	} {
		event := podEvent(newPod(t, c.pod))
		expect.Equalf(t, c.want, possible(t, lifecycles[c.stages], event), "%s, %s: stages", c.stages, c.name)
		if c.want == "" || c.stages == Stock {
			continue
		}
		stage, err := lifecycles[c.stages].Match(context.Background(), event)
		expect.Must(t, err == nil && stage != nil, "%s: stage %v, %v", c.name, stage, err)
		if after, _, err := stage.Delay(context.Background(), event, time.Now()); err != nil || c.want != "pod-complete" && after != c.after {
			t.Errorf("%s: after %s, %v; want %s", c.name, after, err, c.after)
		}
	}
}

// play runs the one stage that matches, and returns the pod after it. Every patch must have the
// pod's UID: otherwise it may reach a later pod of the name.
func play(t *testing.T, l lifecycle.Lifecycle, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	stage, err := l.Match(context.Background(), podEvent(pod))
	expect.Must(t, err == nil && stage != nil, "stage %v, %v", stage, err)
	renderer := gotpl.NewRenderer(gotpl.FuncMap{
		"NodeIPsWith": func(string) []string { return []string{"10.64.0.1"} },
		"PodIPsWith":  func(string, bool, string, string, string) []string { return []string{"10.128.0.1"} },
	})
	patch := func(patch *lifecycle.Patch) error {
		expect.Says(t, string(patch.Data), `"uid":"6e8-uid"`, stage.Name())
		before, err := json.Marshal(pod)
		if err != nil {
			return err
		}
		after, err := strategicpatch.StrategicMergePatch(before, patch.Data, pod)
		if err != nil {
			return err
		}
		next := &corev1.Pod{}
		pod = next
		return yaml.UnmarshalStrict(after, next)
	}
	unexpected := func() error { t.Errorf("%s deletes", stage.Name()); return nil }
	_, err = stage.DoSteps(0, nil, pod, renderer,
		func(*internalversion.StageEvent) error { return nil }, unexpected, patch,
		func(*lifecycle.Apply) error { return unexpected() })
	expect.OK(t, err)
	return pod
}

// outline returns the phase, the readiness, the addresses and the container states of a pod.
func outline(pod *corev1.Pod) string {
	text := string(pod.Status.Phase)
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			text += " ready=" + string(c.Status)
		}
	}
	text += fmt.Sprintf(" %s on %s", pod.Status.PodIP, pod.Status.HostIP)
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		text += fmt.Sprintf(" %s:%t,%t,%t", c.Name, c.Ready, c.State.Running != nil, c.State.Terminated != nil)
	}
	return text
}

func TestPodSteps(t *testing.T) {
	l := lifecycleOf(t, Guarded, "Pod")
	const placed = " 10.128.0.1 on 10.64.0.1"
	for name, c := range map[string]struct {
		pod  string
		want []string // name:ready,running,terminated of each container
	}{
		"has a readiness gate": {
			"{spec: {nodeName: n, readinessGates: [{conditionType: x}], containers: [{name: b, image: i}]}, status: {phase: Pending}}",
			[]string{"Running ready=False" + placed + " b:true,true,false"},
		},
		"runs": {
			"{spec: {nodeName: n, initContainers: [{name: once, image: i}, {name: sidecar, image: i, restartPolicy: Always}], " +
				"containers: [{name: '123', image: i}, {name: b, image: i}]}, status: {phase: Pending}}",
			[]string{"Running ready=True" + placed + " once:true,false,true sidecar:true,true,false 123:true,true,false b:true,true,false"},
		},
		"is ready later": {
			"{metadata: {annotations: {local.lockstep.dev/ready-after: 1s}}, spec: {nodeName: n, containers: [{name: a, image: i}]}, status: {phase: Pending}}",
			[]string{"Running ready=False" + placed + " a:false,true,false", "Running ready=True" + placed + " a:true,true,false"},
		},
		"of a job": {
			"{metadata: {ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j, uid: u}]}, spec: {nodeName: n, containers: [{name: a, image: i}]}, status: {phase: Pending}}",
			[]string{"Running ready=True" + placed + " a:true,true,false", "Succeeded ready=False" + placed + " a:false,false,true"},
		},
	} {
		pod := newPod(t, c.pod)
		for _, want := range c.want {
			pod = play(t, l, pod)
			expect.That(t, outline(pod) == want, "%s: %s, want %s", name, outline(pod), want)
		}
		expect.Equalf(t, "", possible(t, l, podEvent(pod)), "%s: next stage", name)
	}
}

func TestVolumeStages(t *testing.T) {
	for name, c := range map[string]struct{ kind, object, want string }{
		"PVC of ours":       {"PersistentVolumeClaim", "{metadata: {annotations: {volume.kubernetes.io/storage-provisioner: local.lockstep.dev/kwok}}, status: {phase: Pending}}", "claim-provision"},
		"PVC of another":    {"PersistentVolumeClaim", "{metadata: {annotations: {volume.kubernetes.io/storage-provisioner: example.com/disks}}, status: {phase: Pending}}", ""},
		"PVC without one":   {"PersistentVolumeClaim", "{status: {phase: Pending}}", ""},
		"PVC bound":         {"PersistentVolumeClaim", "{metadata: {annotations: {volume.kubernetes.io/storage-provisioner: local.lockstep.dev/kwok}}, spec: {volumeName: v}, status: {phase: Bound}}", ""},
		"PVC terminating":   {"PersistentVolumeClaim", "{metadata: {" + deleted + ", annotations: {volume.kubernetes.io/storage-provisioner: local.lockstep.dev/kwok}}, status: {phase: Pending}}", ""},
		"volume released":   {"PersistentVolume", "{metadata: {annotations: {pv.kubernetes.io/provisioned-by: local.lockstep.dev/kwok}}, spec: {persistentVolumeReclaimPolicy: Delete}, status: {phase: Released}}", "volume-reclaim"},
		"volume retained":   {"PersistentVolume", "{metadata: {annotations: {pv.kubernetes.io/provisioned-by: local.lockstep.dev/kwok}}, spec: {persistentVolumeReclaimPolicy: Retain}, status: {phase: Released}}", ""},
		"volume in use":     {"PersistentVolume", "{metadata: {annotations: {pv.kubernetes.io/provisioned-by: local.lockstep.dev/kwok}}, spec: {persistentVolumeReclaimPolicy: Delete}, status: {phase: Bound}}", ""},
		"volume of another": {"PersistentVolume", "{spec: {persistentVolumeReclaimPolicy: Delete}, status: {phase: Released}}", ""},
		"node unknown":      {"Node", "{}", "node-ready"},
		"node lost":         {"Node", "{status: {conditions: [{type: Ready, status: Unknown}]}}", "node-ready"},
		"node ready":        {"Node", "{status: {conditions: [{type: Ready, status: 'True'}]}}", "node-heartbeat"},
		"node terminating":  {"Node", "{metadata: {" + deleted + "}}", ""},
	} {
		object := &unstructured.Unstructured{}
		expect.OK(t, yaml.Unmarshal([]byte(c.object), &object.Object))
		event := &lifecycle.Event{Annotations: object.GetAnnotations(), Data: object}
		expect.Equalf(t, c.want, possible(t, lifecycleOf(t, Guarded, c.kind), event), "%s: stages", name)
	}
}
