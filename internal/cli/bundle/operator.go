package bundle

import (
	"context"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/install/place"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Bounds of the operator's log and metrics, per pod.
const (
	logLines     = 5000
	logBytes     = 4 << 20
	metricsBytes = 2 << 20
)

func (c *collector) readConfigurations(ctx context.Context) {
	namespaces, err := place.Namespaces(ctx, c.Live)
	c.miss("the namespace of the operator", err)
	c.namespaces = namespaces
	var described []v1alpha1.WorkloadKind
	for _, namespace := range namespaces {
		found := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.InstalledName}}
		c.get(ctx, found)
		parsed := &v1alpha1.Configuration{}
		c.miss("the operator's configuration", yaml.Unmarshal([]byte(found.Data[v1alpha1.InstalledKey]), parsed))
		described = append(described, parsed.Protection.Kinds...)
	}
	c.kinds = workloads.KindsOf(described)
}

// readOperator reads the Deployments, pods, logs and metrics of the operator.
func (c *collector) readOperator(ctx context.Context) {
	for _, namespace := range c.namespaces {
		selected := client.MatchingLabels{"control-plane": "controller-manager"}
		deployments := c.list(ctx, &appsv1.DeploymentList{}, client.InNamespace(namespace), selected)
		pods := c.list(ctx, &corev1.PodList{}, client.InNamespace(namespace), selected)
		c.objects = slices.Concat(c.objects, deployments, pods)
		for _, deployment := range deployments {
			c.deployments = append(c.deployments, deployment.(*appsv1.Deployment))
		}
		for _, pod := range pods {
			c.readPod(ctx, pod.(*corev1.Pod))
		}
	}
	if len(c.deployments) == 0 {
		c.missed = append(c.missed, "the operator: no Deployment of it was found in "+strings.Join(c.namespaces, " or "))
	}
}

func (c *collector) readPod(ctx context.Context, pod *corev1.Pod) {
	options := &corev1.PodLogOptions{TailLines: new(int64(logLines)), LimitBytes: new(int64(logBytes)), Timestamps: true}
	text, err := c.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	c.miss("the log of pod "+pod.Name, err)
	if err == nil {
		c.logs = append(c.logs, file{"logs/" + pod.Name + ".log", text})
	}
	metrics, err := c.readMetrics(ctx, pod)
	c.miss("the metrics of pod "+pod.Name, err)
	if err == nil {
		c.logs = append(c.logs, file{"metrics/" + pod.Name + ".txt", metrics})
	}
}

// tools leave a label, an annotation or managed fields that begin so. An object may have marks of several.
var tools = []struct{ mark, name string }{
	{"olm.owner", "OLM"}, {"argocd", "Argo CD"}, {"kustomize.toolkit.fluxcd.io/", "Flux"}, {"helm.toolkit.fluxcd.io/", "Flux"},
	{"kustomize-controller", "Flux"}, {"meta.helm.sh/", "Helm"}, {"helm", "Helm"}, {"lockstep-install", "lockstep install"},
	{"kubectl", "kubectl"},
}

// tool names what installed an object.
func tool(object client.Object) string {
	marks := slices.Concat(slices.Collect(maps.Keys(object.GetLabels())), slices.Collect(maps.Keys(object.GetAnnotations())))
	for _, entry := range object.GetManagedFields() {
		marks = append(marks, strings.ToLower(entry.Manager))
	}
	for _, known := range tools {
		if slices.ContainsFunc(marks, func(mark string) bool { return strings.HasPrefix(mark, known.mark) }) {
			return strings.TrimSpace(known.name + " " + object.GetLabels()["helm.sh/chart"])
		}
	}
	return unknown
}
