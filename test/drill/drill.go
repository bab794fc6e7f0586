// Package drill drives the built programs on a local control plane: the plane and the
// operator as processes, the audit log, and a reaper that ends all processes however a
// run ends.
//
// It knows what a user can see. It refuses to know the subject of a test and the inside
// of the operator: nothing here imports from internal.
package drill

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
)

// Patience bounds every wait. It is far longer than any step takes, so that a slow machine
// does not look like a broken one.
const Patience = 150 * time.Second

// Program returns the absolute path of a built program.
func Program(name string) (string, error) {
	dir := os.Getenv("LOCKSTEP_BIN")
	if dir == "" {
		dir = filepath.Join("..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is missing: run make build", path)
	}
	return path, nil
}

// Poll calls lacks until it returns nil, for Patience at most, or until ctx ends. It returns the last error.
func Poll(ctx context.Context, lacks func() error) (last error) {
	_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, Patience, true, func(context.Context) (bool, error) {
		last = lacks()
		return last == nil, nil
	})
	return last
}

// LastLines returns the last lines of a text file, or the error of reading it.
func LastLines(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// NewSet returns a set whose workers start with their leader.
func NewSet(namespace, name string, replicas, size int32, pod corev1.PodSpec, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	set := &lwsv1.LeaderWorkerSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: lwsv1.LeaderWorkerSetSpec{
			Replicas:             &replicas,
			StartupPolicy:        lwsv1.LeaderCreatedStartupPolicy,
			LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{Size: &size, WorkerTemplate: corev1.PodTemplateSpec{Spec: pod}},
		},
	}
	for _, edit := range edits {
		edit(set)
	}
	return set
}

// ClaimSpec requests one gibibyte of the default StorageClass.
func ClaimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// ClaimVolume returns the volume of a pod that uses a PVC.
func ClaimVolume(name, claim string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}
}

// Together calls do for each, 16 at a time, and returns the first error.
func Together[T any](all []T, do func(T) error) error {
	var group errgroup.Group
	group.SetLimit(16)
	for _, one := range all {
		group.Go(func() error { return do(one) })
	}
	return group.Wait()
}
