package lws_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/test/fakeapi"
)

// firstLook is what a set asks for that nothing stands of yet.
func firstLook(t *testing.T, edits ...func(*lwsv1.LeaderWorkerSet)) (*lwsv1.LeaderWorkerSet, lws.Plan) {
	t.Helper()
	c := newCluster(t)
	set := fakeapi.Add(c.Server, fakeapi.Set("w", 2, 3, edits...))
	return set, c.decideSet()
}

// created is the object of the only creation of its type.
func created[T action.Object](t *testing.T, plan lws.Plan) (object T, create action.Create) {
	t.Helper()
	var found int
	for _, a := range of[action.Create](plan) {
		if o, ok := a.Object.(T); ok {
			object, create = o, a
			found++
		}
	}
	if found != 1 {
		t.Fatalf("got %d creations of a %T, want 1: %s", found, object, spelled(plan))
	}
	return object, create
}

func TestANewSetIsMadeInOrder(t *testing.T) {
	set, plan := firstLook(t)
	hash := lws.RevisionKey(data(t, set))
	want := []string{"create controllerrevision w-" + hash + "-1", "create statefulset w", "create service w", "status leaderworkerset w"}
	if diff := cmp.Diff(want, spelled(plan)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, a := range of[action.Create](plan) {
		if diff := cmp.Diff(identity.RefOf(identity.KindLeaderWorkerSet, set), a.Owner); diff != "" {
			t.Errorf("owner of %s (-want +got)\n%s", a.Target(), diff)
		}
	}
}

// claims asks for a claim with fields that are kept and fields that are not.
func claims(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{
		ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:               []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName:          fakeapi.Ptr("fast"),
			VolumeMode:                fakeapi.Ptr(corev1.PersistentVolumeBlock),
			VolumeName:                "pv",
			Selector:                  &metav1.LabelSelector{},
			VolumeAttributesClassName: fakeapi.Ptr("gold"),
			DataSource:                &corev1.TypedLocalObjectReference{Name: "source"},
			Resources: corev1.VolumeResourceRequirements{
				Requests: fakeapi.Resources(corev1.ResourceStorage, "1Gi"), Limits: fakeapi.Resources(corev1.ResourceStorage, "2Gi"),
			},
		},
	}}
	set.Spec.LeaderWorkerTemplate.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
	}
}

// reducedClaims is what StatefulSets are given of claims.
func reducedClaims() []corev1.PersistentVolumeClaim {
	return []corev1.PersistentVolumeClaim{{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
		ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: fakeapi.Namespace},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: fakeapi.Ptr("fast"),
			VolumeMode:       fakeapi.Ptr(corev1.PersistentVolumeBlock),
			Resources: corev1.VolumeResourceRequirements{
				Requests: fakeapi.Resources(corev1.ResourceStorage, "1Gi"), Limits: fakeapi.Resources(corev1.ResourceStorage, "2Gi"),
			},
		},
	}}
}

func subgroups(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.SubGroupPolicy = &lwsv1.SubGroupPolicy{SubGroupSize: fakeapi.Ptr[int32](3)}
	fakeapi.Annotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "host")(set)
}

func controllerRef(apiVersion, kind string, owner metav1.Object) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(),
		Controller: fakeapi.Ptr(true), BlockOwnerDeletion: fakeapi.Ptr(true),
	}}
}

var quantities = cmp.Comparer(func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })

func TestLeaderStatefulSet(t *testing.T) {
	set, plan := firstLook(t, claims, fakeapi.Leader("image:l"), func(set *lwsv1.LeaderWorkerSet) {
		set.Labels = map[string]string{"team": "blue", lwsv1.SetNameLabelKey: "forged", lwsv1.RevisionKey: "forged"}
		set.Annotations = map[string]string{"note": "kept", lwsv1.ReplicasAnnotationKey: "forged", lws.AppliedAnnotationKey: "forged"}
		set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{
			Partition: fakeapi.Ptr[int32](1), MaxUnavailable: intstr.FromInt32(2), MaxSurge: intstr.FromString("50%"),
		}
	})
	got, _ := created[*appsv1.StatefulSet](t, plan)
	hash := lws.RevisionKey(data(t, set))
	stamp := got.Annotations[lws.AppliedAnnotationKey]
	if len(stamp) != 16 {
		t.Errorf("stamp %q is no fingerprint", stamp)
	}
	want := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fakeapi.Namespace, Name: "w",
			Labels:          map[string]string{"team": "blue", lwsv1.SetNameLabelKey: "w", lwsv1.RevisionKey: hash},
			Annotations:     map[string]string{"note": "kept", lwsv1.ReplicasAnnotationKey: "2", lws.AppliedAnnotationKey: stamp},
			OwnerReferences: controllerRef("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", set),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            fakeapi.Ptr[int32](2),
			ServiceName:         "w",
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:            &metav1.LabelSelector{MatchLabels: map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{
					Partition: fakeapi.Ptr[int32](1), MaxUnavailable: fakeapi.Ptr(intstr.FromInt32(3)),
				},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0", lwsv1.RevisionKey: hash},
					Annotations: map[string]string{lwsv1.SizeAnnotationKey: "3"},
				},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "leader", Image: "image:l"}}},
			},
			VolumeClaimTemplates: reducedClaims(),
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	if diff := cmp.Diff(want, got, quantities); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestLeaderTemplate(t *testing.T) {
	tests := []struct {
		name        string
		edit        func(*lwsv1.LeaderWorkerSet)
		image       string
		annotations map[string]string
	}{
		{"workers' own when leaders have none", func(*lwsv1.LeaderWorkerSet) {}, "image:1", map[string]string{lwsv1.SizeAnnotationKey: "3"}},
		{"a subdomain per replica", fakeapi.UniquePerReplica, "image:1", map[string]string{
			lwsv1.SizeAnnotationKey: "3", lwsv1.SubdomainPolicyAnnotationKey: "UniquePerReplica",
		}},
		{"exclusive placement", fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, "rack"), "image:1", map[string]string{
			lwsv1.SizeAnnotationKey: "3", lwsv1.ExclusiveKeyAnnotationKey: "rack",
		}},
		{"empty placement is none", fakeapi.Annotation(lwsv1.ExclusiveKeyAnnotationKey, ""), "image:1", map[string]string{lwsv1.SizeAnnotationKey: "3"}},
		{"subgroups", subgroups, "image:1", map[string]string{
			lwsv1.SizeAnnotationKey: "3", lwsv1.SubGroupSizeAnnotationKey: "3",
			lwsv1.SubGroupPolicyTypeAnnotationKey: "LeaderWorker", lwsv1.SubGroupExclusiveKeyAnnotationKey: "host",
		}},
		{"subgroup placement without subgroups", fakeapi.Annotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "host"), "image:1", map[string]string{lwsv1.SizeAnnotationKey: "3"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set, plan := firstLook(t, tt.edit)
			got, _ := created[*appsv1.StatefulSet](t, plan)
			labels := map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.WorkerIndexLabelKey: "0", lwsv1.RevisionKey: lws.RevisionKey(data(t, set))}
			if diff := cmp.Diff(labels, got.Spec.Template.Labels); diff != "" {
				t.Errorf("labels (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tt.annotations, got.Spec.Template.Annotations); diff != "" {
				t.Errorf("annotations (-want +got)\n%s", diff)
			}
			if image := got.Spec.Template.Spec.Containers[0].Image; image != tt.image {
				t.Errorf("got image %q", image)
			}
			if got.Spec.ServiceName != "w" {
				t.Errorf("got service name %q", got.Spec.ServiceName)
			}
		})
	}
}

func TestMaxUnavailableOfLeaders(t *testing.T) {
	tests := []struct {
		unavailable, surge intstr.IntOrString
		replicas           int32
		want               int
	}{
		{intstr.FromInt32(1), intstr.FromInt32(0), 4, 1},
		{intstr.FromInt32(0), intstr.FromInt32(0), 4, 1},
		{intstr.FromString("25%"), intstr.FromString("25%"), 10, 5},
		{intstr.FromInt32(1), intstr.FromInt32(9), 4, 5},
		{intstr.FromInt32(10), intstr.FromInt32(0), 4, 10},
		{intstr.FromString("nonsense"), intstr.FromString("-3%"), 4, 1},
		{intstr.FromInt32(1<<31 - 1), intstr.FromInt32(1), 4, 1<<31 - 1},
	}
	for _, tt := range tests {
		_, plan := firstLook(t, func(set *lwsv1.LeaderWorkerSet) {
			set.Spec.Replicas = &tt.replicas
			set.Spec.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{MaxUnavailable: tt.unavailable, MaxSurge: tt.surge}
		})
		sts, _ := created[*appsv1.StatefulSet](t, plan)
		if got := sts.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.IntValue(); got != tt.want {
			t.Errorf("%s + %s of %d: got %d, want %d", tt.unavailable.String(), tt.surge.String(), tt.replicas, got, tt.want)
		}
	}
}

func TestASetWithoutDefaultsStillMakesLeaders(t *testing.T) {
	_, plan := firstLook(t, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec = lwsv1.LeaderWorkerSetSpec{LeaderWorkerTemplate: lwsv1.LeaderWorkerTemplate{WorkerTemplate: fakeapi.Template("worker", "image:1")}}
	})
	sts, _ := created[*appsv1.StatefulSet](t, plan)
	if *sts.Spec.Replicas != 1 || sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey] != "1" {
		t.Errorf("got %d leaders of groups of %s, want 1 of 1", *sts.Spec.Replicas, sts.Spec.Template.Annotations[lwsv1.SizeAnnotationKey])
	}
}

// withoutWorkers is a set in step whose group 0 just lost its worker StatefulSet
// and pods.
func withoutWorkers(t *testing.T, edits ...func(*lwsv1.LeaderWorkerSet)) *cluster {
	t.Helper()
	c := running(t, 1, 3, edits...)
	fakeapi.Drop[*appsv1.StatefulSet](c.Server, "w-0")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-1")
	fakeapi.Drop[*corev1.Pod](c.Server, "w-0-2")
	return c
}

func TestWorkerStatefulSet(t *testing.T) {
	c := withoutWorkers(t, claims, func(set *lwsv1.LeaderWorkerSet) {
		set.Labels = map[string]string{"team": "blue"}
		set.Annotations = map[string]string{"note": "kept"}
	})
	leader := fakeapi.Find[*corev1.Pod](c.Server, "w-0")
	plan := c.decideGroup("w-0")
	got, create := created[*appsv1.StatefulSet](t, plan)
	key := leader.Labels[lwsv1.RevisionKey]
	selector := map[string]string{
		lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "0", lwsv1.GroupUniqueHashLabelKey: identity.GroupKey(fakeapi.Namespace, "w-0"),
	}
	labels := map[string]string{lwsv1.RevisionKey: key}
	for k, v := range selector {
		labels[k] = v
	}
	metaLabels := map[string]string{"team": "blue"}
	for k, v := range labels {
		metaLabels[k] = v
	}
	want := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fakeapi.Namespace, Name: "w-0", Labels: metaLabels, Annotations: map[string]string{"note": "kept"},
			OwnerReferences: controllerRef("v1", "Pod", leader),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            fakeapi.Ptr[int32](2),
			ServiceName:         "w",
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Ordinals:            &appsv1.StatefulSetOrdinals{Start: 1},
			Selector:            &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
					lwsv1.SizeAnnotationKey: "3", lwsv1.LeaderPodNameAnnotationKey: "w-0",
				}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "worker", Image: "image:1"}}},
			},
			VolumeClaimTemplates: reducedClaims(),
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	if diff := cmp.Diff(want, got, quantities); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if create.Owner != identity.RefOf(identity.KindPod, leader) {
		t.Errorf("got owner %v, want the leader", create.Owner)
	}
	event := create.Tell.Done[0]
	if event.Reason != "GroupsProgressing" || event.Note != "Created worker statefulset for leader pod w-0" || event.Related.Name != "w-0" {
		t.Errorf("got event %+v", event)
	}
}

func TestWorkersAreOfTheirLeadersRevision(t *testing.T) {
	c := withoutWorkers(t, fakeapi.UniquePerReplica, subgroups)
	fakeapi.Edit(c.Server, "w", func(set *lwsv1.LeaderWorkerSet) {
		set.Generation++
		fakeapi.Image("image:2")(set)
		set.Spec.NetworkConfig = nil
		set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr[int32](9)
		set.Spec.LeaderWorkerTemplate.SubGroupPolicy = nil
		fakeapi.Annotation(lwsv1.SubGroupExclusiveKeyAnnotationKey, "zone")(set)
	})
	got, _ := created[*appsv1.StatefulSet](t, c.decideGroup("w-0"))
	template := got.Spec.Template
	if image := template.Spec.Containers[0].Image; image != "image:1" {
		t.Errorf("got image %q, want the leader's revision's", image)
	}
	if *got.Spec.Replicas != 2 || got.Spec.ServiceName != "w-0" {
		t.Errorf("got %d workers of service %q", *got.Spec.Replicas, got.Spec.ServiceName)
	}
	want := map[string]string{
		lwsv1.SizeAnnotationKey: "3", lwsv1.LeaderPodNameAnnotationKey: "w-0", lwsv1.SubGroupSizeAnnotationKey: "3",
		lwsv1.SubGroupPolicyTypeAnnotationKey: "LeaderWorker", lwsv1.SubGroupExclusiveKeyAnnotationKey: "host",
	}
	if diff := cmp.Diff(want, template.Annotations); diff != "" {
		t.Errorf("annotations (-want +got)\n%s", diff)
	}
}

func TestWorkersLearnThatTheirLeaderAsksForTPUs(t *testing.T) {
	ask := func(list func(*corev1.ResourceRequirements), where func(*corev1.PodSpec) *corev1.Container) func(*lwsv1.LeaderWorkerSet) {
		return func(set *lwsv1.LeaderWorkerSet) {
			list(&where(&set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec).Resources)
		}
	}
	limits := func(r *corev1.ResourceRequirements) { r.Limits = fakeapi.Resources("google.com/tpu", "4") }
	requests := func(r *corev1.ResourceRequirements) { r.Requests = fakeapi.Resources("google.com/tpu", "4") }
	none := func(r *corev1.ResourceRequirements) { r.Requests = fakeapi.Resources("google.com/tpu", "0") }
	container := func(spec *corev1.PodSpec) *corev1.Container { return &spec.Containers[0] }
	initial := func(spec *corev1.PodSpec) *corev1.Container {
		spec.InitContainers = []corev1.Container{{Name: "init", Image: "image:1"}}
		return &spec.InitContainers[0]
	}
	for name, tt := range map[string]struct {
		edit func(*lwsv1.LeaderWorkerSet)
		want string
	}{
		"limits":          {ask(limits, container), "true"},
		"requests":        {ask(requests, container), "true"},
		"init containers": {ask(requests, initial), "true"},
		"zero":            {ask(none, container), ""},
	} {
		got, _ := created[*appsv1.StatefulSet](t, withoutWorkers(t, tt.edit).decideGroup("w-0"))
		if flag := got.Spec.Template.Annotations[lwsv1.LeaderRequestsTPUsAnnotationKey]; flag != tt.want {
			t.Errorf("%s: got %q, want %q", name, flag, tt.want)
		}
	}
}

func TestHeadlessServices(t *testing.T) {
	_, plan := firstLook(t)
	shared, _ := created[*corev1.Service](t, plan)
	c := running(t, 2, 2, fakeapi.UniquePerReplica)
	fakeapi.Drop[*corev1.Service](c.Server, "w-1")
	own, _ := created[*corev1.Service](t, c.decideGroup("w-1"))
	for _, tt := range []struct {
		got      *corev1.Service
		name     string
		selector map[string]string
		owner    string
	}{
		{shared, "w", map[string]string{lwsv1.SetNameLabelKey: "w"}, "LeaderWorkerSet"},
		{own, "w-1", map[string]string{lwsv1.SetNameLabelKey: "w", lwsv1.GroupIndexLabelKey: "1"}, "Pod"},
	} {
		want := corev1.ServiceSpec{ClusterIP: "None", PublishNotReadyAddresses: true, Selector: tt.selector}
		if diff := cmp.Diff(want, tt.got.Spec); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(map[string]string{lwsv1.SetNameLabelKey: "w"}, tt.got.Labels); diff != "" {
			t.Errorf("%s labels (-want +got)\n%s", tt.name, diff)
		}
		if tt.got.Name != tt.name || tt.got.OwnerReferences[0].Kind != tt.owner {
			t.Errorf("got service %q of a %s", tt.got.Name, tt.got.OwnerReferences[0].Kind)
		}
	}
	if _, plan := firstLook(t, fakeapi.UniquePerReplica); strings.Contains(strings.Join(spelled(plan), ","), "service") {
		t.Errorf("a set with a subdomain per replica makes a shared service: %s", spelled(plan))
	}
}
