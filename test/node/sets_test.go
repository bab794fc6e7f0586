//go:build linux

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// ourScheduler is the profile of the scheduler that has Lockstep's plugin.
const ourScheduler = "lockstep-scheduler"

// linger is how long a container goes on after it is told to end.
const linger = 2 * time.Second

type edit func(*lwsv1.LeaderWorkerSet)

// newSet is a set whose pods run until they are told to end.
func (s *scene) newSet(name string, replicas, size int32, edits ...edit) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: lwsv1.LeaderWorkerSetSpec{
			Replicas:      &replicas,
			StartupPolicy: lwsv1.LeaderCreatedStartupPolicy,
			LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{
				Size: &size, RestartPolicy: lwsv1.RecreateGroupOnPodRestart,
				WorkerTemplate: corev1.PodTemplateSpec{Spec: lifeSpec("--linger", linger.String())},
			},
		},
	}
	for _, change := range edits {
		change(set)
	}
	return set
}

// lifeSpec is that of a pod with one container, which is told who it is.
func lifeSpec(args ...string) corev1.PodSpec {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	return corev1.PodSpec{
		SchedulerName:                 ourScheduler,
		TerminationGracePeriodSeconds: new(int64(20)),
		AutomountServiceAccountToken:  new(false),
		Containers: []corev1.Container{{
			Name: "serve", Image: lifeImage, Args: args, ImagePullPolicy: corev1.PullNever,
			Env: []corev1.EnvVar{field("POD_UID", "metadata.uid"), field("POD_NAME", "metadata.name")},
		}},
	}
}

func restartPolicy(policy lwsv1.RestartPolicyType) edit {
	return func(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.RestartPolicy = policy }
}

func args(args ...string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Args = args
	}
}

// withDisks gives every pod a claim called data, and has it write there.
func withDisks(set *lwsv1.LeaderWorkerSet) {
	template := &set.Spec.LeaderWorkerTemplate
	template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: diskSpec()}}
	container := &template.WorkerTemplate.Spec.Containers[0]
	container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	container.Args = append(container.Args, "--data", "/data")
}

func diskSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		StorageClassName: new(diskStorage),
		AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// awaitAvailable waits until all groups of a set run and the operator says so.
func (s *scene) awaitAvailable(set *lwsv1.LeaderWorkerSet) {
	s.Helper()
	want := int(*set.Spec.Replicas * *set.Spec.LeaderWorkerTemplate.Size)
	s.eventually("set "+set.Name+" is Available", func() error {
		now := &lwsv1.LeaderWorkerSet{}
		if err := s.Get(s.Context(), s.key(set.Name), now); err != nil {
			return err
		}
		available := meta.IsStatusConditionTrue(now.Status.Conditions, string(lwsv1.LeaderWorkerSetAvailable))
		if !available || now.Status.ReadyReplicas != *set.Spec.Replicas || len(now.Status.Started) < int(*set.Spec.Replicas) {
			return fmt.Errorf("%d groups are ready, %+v", now.Status.ReadyReplicas, now.Status.Conditions)
		}
		if have := len(s.uids()); have != want {
			return fmt.Errorf("%d pods are there, not %d", have, want)
		}
		return nil
	})
}

// awaitAnother waits until these pods are others than they were, and the set is Available.
func (s *scene) awaitAnother(set *lwsv1.LeaderWorkerSet, before map[string]types.UID, names ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("pods %v are others", names), func() error {
		now := s.uids()
		for _, name := range names {
			if now[name] == "" || now[name] == before[name] {
				return fmt.Errorf("pod %s is not another one", name)
			}
		}
		return nil
	})
	s.awaitAvailable(set)
}

// endedTogether checks that each of the pods was asked to end before the first was gone,
// and tells how long all of it took.
func (s *scene) endedTogether(before map[string]types.UID, names ...string) {
	s.Helper()
	var asked, gone []life
	for _, name := range names {
		one := s.pods.life(before[name])
		if one.leaving == 0 || one.gone == 0 {
			s.Fatalf("pod %s was not seen to end: %+v", name, one)
		}
		asked, gone = append(asked, one), append(gone, one)
	}
	first, last := asked[0].askedAt, gone[0].endAt
	for _, a := range asked {
		for _, g := range gone {
			if a.leaving > g.gone {
				s.Errorf("pod %s was asked to end only after %s was gone", a.name, g.name)
			}
			if g.endAt.After(last) {
				last = g.endAt
			}
		}
		if a.askedAt.Before(first) {
			first = a.askedAt
		}
	}
	s.tell("pods %v ended together, within %.1fs (each lingers %s)", names, last.Sub(first).Seconds(), linger)
}

// livesOn are the words that pods left on the volume of a claim.
func (s *scene) livesOn(claim *corev1.PersistentVolumeClaim) []string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(bed.node.disk(claim.Spec.VolumeName), "lives"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s.check("read the disk", err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// restarts is what a set's status tells of a group that failed.
func (s *scene) restarts(set *lwsv1.LeaderWorkerSet, group int32) *lwsv1.GroupRestarts {
	s.Helper()
	now := &lwsv1.LeaderWorkerSet{}
	s.check("read the set", s.Get(s.Context(), s.key(set.Name), now))
	for i := range now.Status.Restarts {
		if now.Status.Restarts[i].Index == group {
			return &now.Status.Restarts[i]
		}
	}
	return nil
}
