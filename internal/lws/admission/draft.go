package admission

import (
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// Draft is an object that the operator would create from a template. Its name is generated, because an object may have
// the real one.
type Draft struct {
	Object action.Object
	// written has the paths of the set for those of the object.
	written map[string]string
}

// Drafts returns the leader StatefulSet or Deployment of a set, and the worker StatefulSet of a group.
func Drafts(set *lwsv1.LeaderWorkerSet) (drafts []Draft) {
	leaders := workload.LeaderStatefulSet(set, "draft", workload.Replicas(set), 0)
	objects, templates := []action.Object{leaders}, []podTemplate{leaderTemplate(set), workerTemplate(set)}
	if workload.HasHashIdentity(set) {
		objects[0] = workload.LeaderDeployment(set, "draft", false)
	}
	if workload.Size(set) > 1 {
		leader := &corev1.Pod{ObjectMeta: leaders.Spec.Template.ObjectMeta, Spec: leaders.Spec.Template.Spec}
		leader.Namespace, leader.Name, leader.UID = set.Namespace, set.Name+"-0", set.UID // an owner has one
		objects = append(objects, workload.WorkerStatefulSet(set, set, leader, nil))
	}
	for i, object := range objects {
		object.SetName("")
		object.SetGenerateName(set.Name + "-")
		path := templates[i].path.String()
		drafts = append(drafts, Draft{object, map[string]string{
			"spec.template.spec": path + ".spec", "spec.volumeClaimTemplates": claimsPath.String(),
			"spec.template.labels": path + ".metadata.labels", "spec.template.annotations": path + ".metadata.annotations",
		}})
	}
	return drafts
}

// SameTemplates reports whether the pods and PVCs of two sets are made of the same templates.
func SameTemplates(set, old *lwsv1.LeaderWorkerSet) bool {
	return slices.EqualFunc(templatesInUse(set), templatesInUse(old), func(is, was podTemplate) bool {
		return equality.Semantic.DeepEqual(is.PodTemplateSpec, was.PodTemplateSpec)
	}) && equality.Semantic.DeepEqual(set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates, old.Spec.LeaderWorkerTemplate.VolumeClaimTemplates)
}

// Faults returns what the API server finds invalid in the template, at the paths of the set. Other fields are not the
// user's, and a webhook may name causes too.
func (d Draft) Faults(err error) (faults []string) {
	refusal, isStatus := errors.AsType[*apierrors.StatusError](err)
	if !isStatus || !apierrors.IsInvalid(err) || refusal.ErrStatus.Details == nil || strings.Contains(err.Error(), "denied the request") {
		return nil
	}
	for _, cause := range refusal.ErrStatus.Details.Causes {
		for at, path := range d.written {
			if rest, isWritten := strings.CutPrefix(cause.Field, at); isWritten {
				faults = append(faults, path+rest+": "+cause.Message)
			}
		}
	}
	return faults
}
