package admission_test

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// withScheduling is the field as a user writes it.
func withScheduling(text string) change {
	return func(s *lwsv1.LeaderWorkerSet) {
		s.Spec.Scheduling = &lwsv1.Scheduling{}
		if err := yaml.UnmarshalStrict([]byte(text), s.Spec.Scheduling); err != nil {
			panic(err)
		}
	}
}

func controlled(s *lwsv1.LeaderWorkerSet) {
	s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "a/v1", Kind: "Parent", Name: "p", UID: "p", Controller: new(true)}}
}

func withClass(class string) change {
	return withWorkers(func(p *corev1.PodTemplateSpec) { p.Spec.PriorityClassName = class })
}

var (
	ready   change = func(s *lwsv1.LeaderWorkerSet) { s.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }
	grouped        = withWorkers(func(p *corev1.PodTemplateSpec) {
		p.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: new("g")}
	})
	claimed = withWorkers(func(p *corev1.PodTemplateSpec) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net", ResourceClaimTemplateName: new("fast")}}
	})
	native  = admission.Scheduling{IsEnabled: true, Provider: gang.Kubernetes, Unserved: func(string) error { return nil }}
	volcano = admission.Scheduling{IsEnabled: true, Provider: gang.Volcano}
)

const (
	wholeGang  = `{schedulingPolicy: {gang: {}}}`
	workerGang = `{replica: {worker: {schedulingPolicy: {gang: {}}}}}`
	template   = lwsv1.GroupTemplateNameAnnotationKey
	parent     = lwsv1.ParentPodGroupAnnotationKey
)

func TestValidateScheduling(t *testing.T) {
	unserved := func(kind string) admission.Scheduling {
		s := native
		s.Unserved = func(k string) error {
			if k == kind {
				return errors.New("gone")
			}
			return nil
		}
		return s
	}
	faults := map[string]field.ErrorList{}
	for name, tt := range map[string]struct {
		on  admission.Scheduling
		set *lwsv1.LeaderWorkerSet
	}{
		"gate off":               {admission.Scheduling{Provider: gang.Kubernetes}, newSet(scheduled)},
		"no provider":            {admission.Scheduling{IsEnabled: true}, newSet(scheduled)},
		"Workloads not served":   {unserved("Workload"), newSet(scheduled)},
		"PodGroups not served":   {unserved("PodGroup"), newSet(scheduled)},
		"without the field":      {unserved("Workload"), newSet()},
		"each group":             {native, newSet(scheduled)},
		"each group, spelt out":  {native, newSet(withScheduling(`{replica: {schedulingPolicy: {gang: {}}}}`))},
		"the set":                {native, newSet(withScheduling(wholeGang))},
		"roles":                  {native, newSet(withScheduling(`{replica: {leader: {schedulingPolicy: {gang: {minCount: 1}}}, worker: {schedulingPolicy: {gang: {minCount: 3}}}}}`))},
		"the set and groups":     {native, newSet(withScheduling(`{schedulingPolicy: {basic: {}}, replica: {disruptionMode: {all: {}}}}`))},
		"groups and roles":       {native, newSet(withScheduling(`{replica: {schedulingConstraints: {}, leader: {}}}`))},
		"all levels":             {native, newSet(withScheduling(`{schedulingConstraints: {}, replica: {disruptionMode: {all: {}}, worker: {}}}`))},
		"two classes":            {native, newSet(scheduled, withLeaderTemplate(), withClass("high"))},
		"a PodGroup of the user": {native, newSet(scheduled, grouped)},
		"a count of groups":      {native, newSet(withScheduling(`{schedulingPolicy: {gang: {minGroupCount: 2}}}`))},
		"roles of one pod":       {native, newSet(withSize(1), withScheduling(workerGang))},
		"a part of the workers":  {native, newSet(withScheduling(`{replica: {worker: {schedulingPolicy: {gang: {minCount: 2}}}}}`))},
		"workers that wait, in a gang with their leader": {native, newSet(scheduled, ready)},
		"leaders alone, that are waited for":             {native, newSet(scheduled, ready, withSize(1))},
		"workers that wait, in a gang":                   {native, newSet(withScheduling(workerGang), ready)},
		"workers that wait, and no gang":                 {native, newSet(withScheduling(`{schedulingPolicy: {basic: {}}}`), ready)},
		"exclusive gangs":                                {native, newSet(withScheduling(workerGang), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))},
		"exclusive groups in a topology":                 {native, newSet(withScheduling(`{schedulingConstraints: {topology: [{key: rack}]}}`), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))},
		"exclusive groups without gang":                  {native, newSet(withScheduling(`{schedulingPolicy: {basic: {}}}`), withAnnotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"))},
		"a claim that pods have, and one not":            {native, newSet(claimed, withScheduling(`{replica: {worker: {resourceClaims: [{name: net, resourceClaimTemplateName: fast}, {name: gpu, resourceClaimName: a}]}}}`))},
		"Volcano":                                        {volcano, newSet(withScheduling(`{replica: {schedulingPolicy: {gang: {}}}}`))},
		"Volcano for the set":                            {volcano, newSet(withScheduling(wholeGang))},
		"what Volcano lacks":                             {volcano, newSet(withScheduling(`{replica: {schedulingPolicy: {basic: {}}, schedulingConstraints: {topology: [{key: rack}]}, disruptionMode: {single: {}}}}`))},

		"delegated": {native, newSet(scheduled, controlled, withAnnotation(template, "w"), withAnnotation(parent, "cpg"))},
		"delegated by no controller, by role, to no template": {native, newSet(withScheduling(workerGang), withAnnotation(template, ""))},
		"delegated to no group":                               {native, newSet(scheduled, controlled, withAnnotation(parent, ""))},
	} {
		faults[name] = tt.on.ValidateCreate(tt.set)
	}
	checkTexts(t, "schedulings.txt", faults)
}

func TestValidateSchedulingChange(t *testing.T) {
	faults := map[string]field.ErrorList{}
	for name, tt := range map[string]struct{ old, is []change }{
		"added":                       {nil, []change{scheduled}},
		"removed":                     {[]change{scheduled}, nil},
		"another level":               {[]change{scheduled}, []change{withScheduling(wholeGang)}},
		"another class":               {[]change{scheduled}, []change{scheduled, withClass("high")}},
		"the default spelt out":       {[]change{scheduled}, []change{withScheduling(`{replica: {schedulingPolicy: {gang: {}}}}`)}},
		"a policy removed":            {[]change{withScheduling(`{replica: {schedulingPolicy: {basic: {}}}}`)}, []change{scheduled}},
		"a disruption mode added":     {[]change{withScheduling(wholeGang)}, []change{withScheduling(`{schedulingPolicy: {gang: {}}, disruptionMode: {all: {}}}`)}},
		"a size, and the count of it": {[]change{withScheduling(`{replica: {worker: {schedulingPolicy: {gang: {minCount: 3}}}}}`)}, []change{withSize(6), withScheduling(`{replica: {worker: {schedulingPolicy: {gang: {minCount: 5}}}}}`)}},
		"delegated later":             {[]change{scheduled, controlled}, []change{scheduled, controlled, withAnnotation(template, "w")}},
	} {
		faults[name] = native.ValidateUpdate(newSet(tt.is...), newSet(tt.old...))
	}
	checkTexts(t, "scheduling-changes.txt", faults)
}
