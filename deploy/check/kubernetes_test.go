package check_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// An unknown or repeated field is an error.
func manifests(t *testing.T, name string) (byKind map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../kubernetes", name))
	if err != nil {
		t.Fatalf("%s: got %v, want a file", name, err)
	}
	byKind = make(map[string]any)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var head struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%s: got %v, want YAML", name, err)
		}
		object := map[string]any{
			"v1 Service": new(corev1.Service), "apps/v1 StatefulSet": new(appsv1.StatefulSet),
			"apps/v1 Deployment": new(appsv1.Deployment), "policy/v1 PodDisruptionBudget": new(policyv1.PodDisruptionBudget),
		}[head.APIVersion+" "+head.Kind]
		if object == nil {
			t.Fatalf("%s: got %+v, want a kind that is checked", name, head)
		}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Errorf("%s: %s: got %v, want no error", name, head.Kind, err)
		}
		byKind[head.Kind] = object
	}
	return byKind
}

// An empty selector matches none.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// A tag may mean other bytes later.
var byDigest = regexp.MustCompile(`^[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}$`)

// A pod has no more rights than needed, and probes, mounts and listeners refer to what exists.
func checkPod(t *testing.T, p *corev1.PodTemplateSpec, service *corev1.Service, volumes []string) {
	t.Helper()
	c := p.Spec.Containers[0]
	if s := c.SecurityContext; s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("the container: got %+v, want no more rights than it needs", s)
	}
	if s := p.Spec.SecurityContext; s == nil || !*s.RunAsNonRoot || *s.RunAsUser != 65532 || *p.Spec.EnableServiceLinks ||
		*p.Spec.AutomountServiceAccountToken {
		t.Errorf("the pod: got %+v, want no more rights than it needs", s)
	}
	if !byDigest.MatchString(c.Image) {
		t.Errorf("got the image %s, want one of a registry, named by its digest", c.Image)
	}
	ports := make(map[string]int32)
	for _, port := range c.Ports {
		ports[port.Name] = port.ContainerPort
	}
	for _, port := range service.Spec.Ports {
		if ports[port.TargetPort.StrVal] != port.Port || port.TargetPort.StrVal == "admin" {
			t.Errorf("the service's port %s: got %+v, want a port of the container, not admin", port.Name, port)
		}
	}
	for name, probe := range map[string]*corev1.Probe{"startup": c.StartupProbe, "liveness": c.LivenessProbe,
		"readiness": c.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil || ports[probe.HTTPGet.Port.StrVal] != 8082 {
			t.Errorf("the %s probe: got %+v, want a GET at port 8082", name, probe)
		}
	}
	env := make(map[string]string)
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	for setting, port := range map[string]string{"QUERY": "8080", "INGEST": "8081", "MQTT": "1883", "ADMIN": "8082"} {
		if env["CARSTATE_"+setting+"_ADDR"] != "0.0.0.0:"+port {
			t.Errorf("the %s listener: got %q, want 0.0.0.0:%s", setting, env["CARSTATE_"+setting+"_ADDR"], port)
		}
	}
	for _, v := range p.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, m := range c.VolumeMounts {
		if !slices.Contains(volumes, m.Name) {
			t.Errorf("a mount: got no volume %s, want it", m.Name)
		}
	}
	if !selects(service.Spec.Selector, p.Labels) || c.Resources.Limits.Memory().IsZero() {
		t.Error("the service: got no pod, or memory without a limit, want both")
	}
}

func TestKubernetesOneNode(t *testing.T) {
	m := manifests(t, "one-node.yaml")
	if kinds := slices.Sorted(maps.Keys(m)); !slices.Equal(kinds, []string{"Service", "StatefulSet"}) {
		t.Fatalf("the kinds: got %q, want Service and StatefulSet", kinds)
	}
	set, service := m["StatefulSet"].(*appsv1.StatefulSet), m["Service"].(*corev1.Service)
	if *set.Spec.Replicas != 1 || set.Spec.ServiceName != service.Name ||
		!selects(set.Spec.Selector.MatchLabels, set.Spec.Template.Labels) {
		t.Errorf("the set: got %+v, want 1 replica, the service's name, and the labels of its pods", set.Spec)
	}
	checkPod(t, &set.Spec.Template, service, []string{set.Spec.VolumeClaimTemplates[0].Name})
}

func TestKubernetesCluster(t *testing.T) {
	m := manifests(t, "cluster.yaml")
	if kinds := slices.Sorted(maps.Keys(m)); !slices.Equal(kinds,
		[]string{"Deployment", "PodDisruptionBudget", "Service"}) {
		t.Fatalf("the kinds: got %q, want Deployment, PodDisruptionBudget and Service", kinds)
	}
	d, budget := m["Deployment"].(*appsv1.Deployment), m["PodDisruptionBudget"].(*policyv1.PodDisruptionBudget)
	labels := d.Spec.Template.Labels
	if *d.Spec.Replicas < 2 || !selects(d.Spec.Selector.MatchLabels, labels) ||
		!selects(budget.Spec.Selector.MatchLabels, labels) ||
		budget.Spec.MaxUnavailable.IntValue() >= int(*d.Spec.Replicas) {
		t.Errorf("got the deployment %+v, the budget %+v, want 2 replicas, fewer unavailable", d.Spec, budget.Spec)
	}
	checkPod(t, &d.Spec.Template, m["Service"].(*corev1.Service), nil)
	i := slices.IndexFunc(d.Spec.Template.Spec.Containers[0].Env,
		func(e corev1.EnvVar) bool { return e.Name == "CARSTATE_NATS" })
	if from := d.Spec.Template.Spec.Containers[0].Env[i].ValueFrom; from == nil || from.SecretKeyRef == nil {
		t.Error("the password of NATS: got none in a Secret, want one")
	}
}
