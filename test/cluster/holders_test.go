package cluster

import (
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// nowhere is a template of pods that use a claim, and that no node takes.
func nowhere(claim string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	pods := template(imageA)
	pods.Labels = map[string]string{"app": claim}
	pods.Spec.RestartPolicy = restart
	pods.Spec.NodeSelector = map[string]string{"nowhere": "at-all"}
	pods.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}}}
	return pods
}

// holder is a workload that holds a claim of its name, and what makes it let go.
type holder struct {
	client.Object
	says  string
	letGo string // a merge patch, or empty: it is deleted
}

func (s *guarded) holders() []holder {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: s.namespace, Name: name} }
	selector := func(name string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	}
	job := batchv1.JobSpec{Template: nowhere("job", corev1.RestartPolicyNever)}
	nightly := batchv1.JobSpec{Template: nowhere("cron", corev1.RestartPolicyNever)}
	return []holder{
		{&appsv1.StatefulSet{ObjectMeta: meta("sts"), Spec: appsv1.StatefulSetSpec{Selector: selector("sts"), Template: nowhere("sts", "")}},
			"StatefulSet/sts", `{"spec":{"replicas":0}}`},
		{&appsv1.Deployment{ObjectMeta: meta("deploy"), Spec: appsv1.DeploymentSpec{Selector: selector("deploy"), Template: nowhere("deploy", "")}},
			"Deployment/deploy", `{"spec":{"replicas":0}}`},
		{&appsv1.ReplicaSet{ObjectMeta: meta("rs"), Spec: appsv1.ReplicaSetSpec{Selector: selector("rs"), Template: nowhere("rs", "")}},
			"ReplicaSet/rs", ""},
		{&appsv1.DaemonSet{ObjectMeta: meta("ds"), Spec: appsv1.DaemonSetSpec{Selector: selector("ds"), Template: nowhere("ds", "")}},
			"DaemonSet/ds", ""},
		{&batchv1.Job{ObjectMeta: meta("job"), Spec: job}, "Job/job", `{"spec":{"suspend":true}}`},
		{&batchv1.CronJob{ObjectMeta: meta("cron"), Spec: batchv1.CronJobSpec{Schedule: "0 0 29 2 *", JobTemplate: batchv1.JobTemplateSpec{Spec: nightly}}},
			"CronJob/cron", `{"spec":{"suspend":true}}`},
	}
}

func workloadsHold(t *testing.T) {
	s := newGuarded(t)
	all := s.holders()
	for _, h := range all {
		s.claim(h.GetName(), nil)
		s.create(h.Object)
	}
	for _, h := range all {
		claim := s.says(h.GetName(), h.says)
		if err := s.client.Delete(t.Context(), claim, client.DryRunAll); !refused(err) {
			t.Errorf("the deletion of %s ended with %v", claim.Name, err)
		}
	}
	s.eventually("the namespace counts them", func() error {
		itself := s.itself()
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(itself), itself)
		return errors.Join(err, lacking("held claims", fmt.Sprint(len(all)), itself.Annotations[pvc.HeldClaimsAnnotation]))
	})
	for _, h := range all {
		if h.letGo == "" {
			s.remove(h.Object, propagation(metav1.DeletePropagationBackground))
			continue
		}
		s.patch(h.Object, h.letGo)
	}
	for _, h := range all {
		s.awaitFree(h.GetName())
		s.remove(s.claimNamed(h.GetName()))
	}
}

func (s *guarded) claimNamed(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
}

// foreignKindsHold: a kind that is known by description alone holds from when it is
// served, and lets go when it is not any more.
func foreignKindsHold(t *testing.T) {
	s := newGuarded(t)
	definition := s.define("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
	s.claim("ckpt-train", nil)
	train := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"namespace": s.namespace, "name": "train"},
		"spec": map[string]any{"volumeClaimPolicies": []any{map[string]any{"templates": []any{
			map[string]any{"metadata": map[string]any{"name": "ckpt"}},
		}}}},
	}}
	s.eventually("a JobSet can be made", func() error { return s.client.Create(t.Context(), train) })
	s.says("ckpt-train", "JobSet/train")
	s.patch(train, `{"spec":{"suspend":true}}`)
	s.awaitFree("ckpt-train")
	s.patch(train, `{"spec":{"suspend":false}}`)
	s.says("ckpt-train", "JobSet/train")
	s.remove(definition)
	s.awaitFree("ckpt-train")
}

// nobodyPins: what is in another namespace, bears labels, was forged, or never runs
// refuses nobody.
func nobodyPins(t *testing.T) {
	s, other := newGuarded(t), newGuarded(t)
	mallory := s.as("mallory")
	other.create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: other.namespace, Name: "sts"},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}, Template: nowhere("theirs", ""),
		},
	})
	other.says(other.claim("theirs", nil).Name, "StatefulSet/sts")
	s.claim("theirs", nil)
	labelled := s.claimNamed("labelled")
	s.claim(labelled.Name, nil)
	s.patch(labelled, `{"metadata":{"labels":{"leaderworkerset.sigs.k8s.io/name":"a","app":"theirs"}}}`)
	forged := s.claim("forged", nil)
	for _, key := range []string{pvc.HoldersAnnotation, pvc.HoldAnnotation, pvc.ReleaseAnnotation} {
		err := mallory.Patch(t.Context(), forged.DeepCopy(), client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"mine"}}}`, key)))
		if !drillForbidden(err, "guard.protection.lockstep.dev") {
			t.Errorf("forging %s ended with %v", key, err)
		}
	}
	copied := s.claimNamed("copied")
	copied.Annotations, copied.Spec = map[string]string{pvc.HoldersAnnotation: "StatefulSet/x", pvc.HoldAnnotation: "mine"}, forged.Spec
	s.check("create a claim with words on it", mallory.Create(t.Context(), copied))
	pod := s.podNamed("waiting")
	s.claim("waited-for", nil)
	pod.Spec = nowhere("waited-for", "").Spec
	s.create(pod)
	s.claim("canary", nil) // whoever holds it was seen after all of these
	s.create(s.holders()[1].Object)
	s.says(s.claim("deploy", nil).Name, "Deployment/deploy")
	s.awaitFree("theirs", "labelled", "forged", "copied", "waited-for", "canary")
	for _, name := range []string{"theirs", "labelled", "forged", "copied", "waited-for", "canary"} {
		s.check("delete "+name, mallory.Delete(t.Context(), s.claimNamed(name)))
	}
}

// as is a client of somebody who may do everything with claims but release them.
func (s *guarded) as(user string) client.Client {
	s.Helper()
	name := s.namespace + "-" + user
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims", "persistentvolumeclaims/status"}, Verbs: []string{"*"}},
	}})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
	config := rest.CopyConfig(bed.rest)
	config.Impersonate.UserName = user
	c, err := client.New(config, client.Options{Scheme: bed.client.Scheme()})
	s.check("make a client", err)
	s.eventually(user+" may list claims", func() error {
		return c.List(s.Context(), &corev1.PersistentVolumeClaimList{}, client.InNamespace(s.namespace))
	})
	return c
}
