package bundle

import (
	"context"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/install"
	"lockstep.dev/lockstep/internal/pvc/workloads"
)

// Bounds of the operator's log and metrics, per pod.
const (
	logLines     = 5000
	logBytes     = 4 << 20
	metricsBytes = 2 << 20
)

// operatorFacts are what is read of the installation.
type operatorFacts struct {
	// namespaces are where operators may run.
	namespaces     []string
	configurations []*v1alpha1.Configuration
	deployments    []*appsv1.Deployment
}

// kinds are the workloads that the installation knows beside those that are built in.
func (o *operatorFacts) kinds() []workloads.Kind {
	var described []v1alpha1.WorkloadKind
	for _, c := range o.configurations {
		described = append(described, c.Protection.Kinds...)
	}
	return workloads.KindsOf(described)
}

func (c *collector) readConfigurations(ctx context.Context) {
	namespaces, err := install.Namespaces(ctx, c.Live)
	c.miss("the namespace of the operator", err)
	c.operator.namespaces = namespaces
	for _, namespace := range namespaces {
		found := &corev1.ConfigMap{}
		if c.get(ctx, &lookup{Object: found, namespace: namespace, name: v1alpha1.InstalledName}); found.Name == "" {
			continue
		}
		configuration, err := configurationIn(found)
		c.miss("the operator's configuration", err)
		if err == nil {
			c.operator.configurations = append(c.operator.configurations, configuration)
		}
	}
}

// readOperator reads the Deployments, pods, logs and metrics of the operator.
func (c *collector) readOperator(ctx context.Context) {
	kube, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		c.miss("the operator", err)
		return
	}
	for _, namespace := range c.operator.namespaces {
		selected := []client.ListOption{client.InNamespace(namespace), client.MatchingLabels{"control-plane": "controller-manager"}}
		deployments, pods := &appsv1.DeploymentList{}, &corev1.PodList{}
		c.miss("the operator's Deployment", c.Live.List(ctx, deployments, selected...))
		c.miss("the operator's pods", c.Live.List(ctx, pods, selected...))
		for i := range deployments.Items {
			c.operator.deployments = append(c.operator.deployments, &deployments.Items[i])
			c.objects = append(c.objects, &deployments.Items[i])
		}
		for i := range pods.Items {
			c.objects = append(c.objects, &pods.Items[i])
			c.readPod(ctx, kube, &pods.Items[i])
		}
	}
	if len(c.operator.deployments) == 0 {
		c.missed = append(c.missed, "the operator: no Deployment of it was found in "+strings.Join(c.operator.namespaces, " or "))
	}
}

func (c *collector) readPod(ctx context.Context, kube kubernetes.Interface, pod *corev1.Pod) {
	lines, bytes := int64(logLines), int64(logBytes)
	options := &corev1.PodLogOptions{TailLines: &lines, LimitBytes: &bytes, Timestamps: true}
	text, err := kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).DoRaw(ctx)
	c.miss("the log of pod "+pod.Name, err)
	if err == nil {
		c.logs = append(c.logs, file{"logs/" + pod.Name + ".log", text})
	}
	metrics, err := c.readMetrics(ctx, kube, pod)
	c.miss("the metrics of pod "+pod.Name, err)
	if err == nil {
		c.logs = append(c.logs, file{"metrics/" + pod.Name + ".txt", metrics})
	}
}

// tool names what installed an object, by its labels, annotations and managed fields.
func tool(object client.Object) string {
	labels, annotations := object.GetLabels(), object.GetAnnotations()
	switch {
	case labels["olm.owner"] != "":
		return "OLM"
	case annotations["argocd.argoproj.io/tracking-id"] != "":
		return "Argo CD"
	case labels["kustomize.toolkit.fluxcd.io/name"] != "" || labels["helm.toolkit.fluxcd.io/name"] != "":
		return "Flux"
	case labels["app.kubernetes.io/managed-by"] == "Helm":
		return strings.TrimSpace("Helm " + labels["helm.sh/chart"])
	}
	for _, known := range []struct{ manager, tool string }{
		{"lockstep", "lockstep install"}, {"helm", "Helm"}, {"argocd", "Argo CD"}, {"kustomize-controller", "Flux"}, {"kubectl", "kubectl"},
	} {
		for _, entry := range object.GetManagedFields() {
			if strings.HasPrefix(strings.ToLower(entry.Manager), known.manager) {
				return known.tool
			}
		}
	}
	return unknown
}
