package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/internal/version"
)

const (
	unknown = "unknown"
	// eventsShown and outputsShown bound the page; the bundle has the others.
	eventsShown, outputsShown = 100, 40
	// shownBytes bounds each output on the page.
	shownBytes = 32 << 10
)

// page is report.md. Everything that was read passes through the redactor.
func (c *collector) page(left []string) string {
	p := &markdown{text: c.redactor.Text}
	p.line("# Report of a problem with Lockstep\n")
	p.line("`%s` wrote this at %s.", p.text(c.Command), c.moment.UTC().Format(time.RFC3339))
	p.line("Values that may be secret are tokens; equal values have equal tokens.")
	p.line("Please answer the three questions, look through the files, and attach the archive.\n")
	p.line("## What happened\n")
	p.line("- **What did you do?**\n- **What did you expect?**\n- **What happened instead?**\n")
	c.versions(p)
	c.configuration(p)
	c.nodes(p)
	c.outputs(p)
	c.lastEvents(p)
	p.line("## What is missing\n")
	missing := slices.Concat(c.missed, left)
	if len(missing) == 0 {
		p.line("Nothing.")
	}
	for _, m := range missing {
		p.line("- %s", p.text(m))
	}
	return p.String()
}

// markdown is a text in Markdown.
type markdown struct {
	strings.Builder
	text func(string) string
}

func (p *markdown) line(format string, values ...any) { fmt.Fprintf(p, format+"\n", values...) }

// row is a row of a table. A cell has one line.
func (p *markdown) row(cells ...any) {
	for _, cell := range cells {
		text := strings.Join(strings.Fields(strings.ReplaceAll(fmt.Sprint(cell), "|", "/")), " ")
		p.WriteString("| " + p.text(text) + " ")
	}
	p.WriteString("|\n")
}

func (p *markdown) head(cells ...string) {
	p.line("| %s |\n|%s", strings.Join(cells, " | "), strings.Repeat(" --- |", len(cells)))
}

func (p *markdown) block(text string) {
	if len(text) > shownBytes {
		text = text[:shownBytes] + "\n(the file has the rest)\n"
	}
	p.line("```\n%s```\n", strings.ReplaceAll(p.text(text), "```", "'''"))
}

func (c *collector) versions(p *markdown) {
	p.line("## Versions\n")
	p.head("what", "version")
	kubernetes := unknown
	if c.server != nil {
		kubernetes = c.server.GitVersion + ", " + c.server.Platform
	}
	p.line("| Kubernetes | %s |", kubernetes)
	build := version.Get()
	p.line("| kubectl lockstep | %s, commit %s |", build.Version, build.Commit)
	for _, deployment := range c.deployments {
		for i := range deployment.Spec.Template.Spec.Containers {
			p.row("operator "+deployment.Namespace+"/"+deployment.Name, deployment.Spec.Template.Spec.Containers[i].Image)
		}
		p.line("| installed by | %s |", tool(deployment))
	}
	p.line("")
}

func (c *collector) configuration(p *markdown) {
	for _, object := range c.objects {
		if found, ok := object.(*corev1.ConfigMap); ok && found.Name == v1alpha1.InstalledName {
			p.line("## Configuration\n")
			text, _, _ := unstructured.NestedString(c.redactor.Object(found).Object, "data", v1alpha1.InstalledKey)
			p.line("```\n%s```\n", text) // it is redacted
		}
	}
}

// nodes counts the nodes of each sort on which pods of the report run.
func (c *collector) nodes(p *markdown) {
	sorts := map[string]int{}
	for _, object := range c.objects {
		if node, ok := object.(*corev1.Node); ok {
			info := node.Status.NodeInfo
			cloud, _, _ := strings.Cut(node.Spec.ProviderID, "://")
			sorts[strings.Join([]string{
				info.OSImage, info.Architecture, info.KernelVersion, info.ContainerRuntimeVersion, info.KubeletVersion,
				cloud, node.Labels[corev1.LabelInstanceTypeStable], accelerators(node),
			}, ", ")]++
		}
	}
	p.line("## Nodes\n")
	p.head("nodes", "OS, architecture, kernel, container runtime, kubelet, cloud, instance type, accelerators of each")
	for _, sort := range slices.Sorted(maps.Keys(sorts)) {
		p.row(sorts[sort], sort)
	}
	p.line("")
}

// accelerators are the resources of a node that a device plugin adds.
func accelerators(node *corev1.Node) string {
	var found []string
	for name, quantity := range node.Status.Capacity {
		if strings.Contains(string(name), "/") && !quantity.IsZero() {
			found = append(found, quantity.String()+" "+string(name))
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

func (c *collector) outputs(p *markdown) {
	p.line("## Status, plan and why\n")
	for _, f := range c.seen[:min(len(c.seen), outputsShown)] {
		p.line("### %s\n", p.text(f.name))
		p.block(string(f.content))
	}
}

func (c *collector) lastEvents(p *markdown) {
	p.line("## Events\n")
	p.head("last", "times", "type", "object", "reason", "message")
	for _, e := range c.events[max(0, len(c.events)-eventsShown):] {
		last, object := eventTime(e).UTC().Format(time.RFC3339), e.InvolvedObject.Kind+" "+e.InvolvedObject.Name
		p.row(last, max(1, e.Count), e.Type, object, e.Reason, e.Message)
	}
	p.line("")
}
