// Command go-driver is a driver for GPUs that do not exist, on the Go helper for DRA drivers. The scenarios let it take
// turns with a driver on our SDK, or run beside one.
//
// It does for a claim what drivers on that helper do: a CDI file by the CDI library, and a checkpoint of all claims
// that is read and rewritten for each. Its devices, and what a container sees of them, are those of mock-gpu-driver, so
// that a test can put one in the other's place.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

type options struct {
	kubeconfig, nodeName, driverName, kubeletRoot, cdiRoot string

	inventory  string
	numDevices int

	serialize    bool
	podUID       string
	prepareDelay time.Duration

	grpcVerbosity  int
	publishOnError bool

	qps      float64
	burst    int
	json     bool
	cdiWatch bool
	durable  bool
}

func main() {
	if err := run(parse()); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func parse() options {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file; without it the pod's service account")
	flag.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "node that this driver runs on")
	flag.StringVar(&o.driverName, "driver-name", "gpu.example.com", "name of the driver")
	flag.StringVar(&o.kubeletRoot, "kubelet-root", "/var/lib/kubelet", "root folder of the kubelet")
	flag.StringVar(&o.cdiRoot, "cdi-root", "/var/run/cdi", "folder that the container runtime reads CDI files from")
	flag.StringVar(&o.inventory, "inventory", "", "JSON file with the slices to publish, instead of --num-devices")
	flag.IntVar(&o.numDevices, "num-devices", 8, "how many GPUs the node has")
	flag.BoolVar(&o.serialize, "serialize", true, "one prepare or unprepare at a time, as is the helper's default")
	flag.StringVar(&o.podUID, "pod-uid", "", "UID of the driver's pod: turns rolling updates on")
	flag.DurationVar(&o.prepareDelay, "prepare-delay", 0, "how long each prepare of a claim takes")
	flag.IntVar(&o.grpcVerbosity, "grpc-verbosity", 6, "at which verbosity of the log each call is logged; 6 is the helper's default, negative is documented as never")
	flag.BoolVar(&o.publishOnError, "publish-on-error", false, "publish anew when the helper tells of an error, once the driver is about to stop")
	flag.Float64Var(&o.qps, "qps", 5, "requests a second to the API server; 5 is client-go's default")
	flag.IntVar(&o.burst, "burst", 10, "requests to the API server at once; 10 is client-go's default")
	flag.BoolVar(&o.json, "json", false, "talk to the API server in JSON, instead of client-go's default")
	flag.BoolVar(&o.cdiWatch, "cdi-watch", true, "let the CDI library watch its folder, as is its default; off is the fair comparison")
	flag.BoolVar(&o.durable, "durable", false, "sync what is written, and note a claim before it is worked on, as drivers on our SDK do")
	klog.InitFlags(nil)
	flag.Parse()
	return o
}

func run(o options) error {
	if o.nodeName == "" {
		return fmt.Errorf("no node name: give it by --node-name or NODE_NAME")
	}
	if flag.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", flag.Arg(0))
	}
	slices, err := o.slices()
	if err != nil {
		return err
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	data := filepath.Join(o.kubeletRoot, "plugins", o.driverName)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(o.cdiRoot), cdi.WithAutoRefresh(o.cdiWatch))
	if err != nil {
		return fmt.Errorf("CDI folder %s: %w", o.cdiRoot, err)
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	plugin := newDriver(o, slices, cache, checkpoint{path: filepath.Join(data, "checkpoint.json"), durable: o.durable})
	helper, err := kubeletplugin.Start(ctx, plugin, append(healthOptions(),
		kubeletplugin.KubeClient(client),
		kubeletplugin.DriverName(o.driverName),
		kubeletplugin.NodeName(o.nodeName),
		kubeletplugin.RegistrarDirectoryPath(filepath.Join(o.kubeletRoot, "plugins_registry")),
		kubeletplugin.PluginDataDirectoryPath(data),
		kubeletplugin.RollingUpdate(types.UID(o.podUID)),
		kubeletplugin.Serialize(o.serialize),
		kubeletplugin.GRPCVerbosity(o.grpcVerbosity),
	)...)
	if err != nil {
		return err
	}
	defer helper.Stop()
	publish := func(revision int64) error {
		pools := map[string]resourceslice.Pool{o.nodeName: {Slices: revised(slices, revision)}}
		return helper.PublishResources(context.Background(), resourceslice.DriverResources{Pools: pools})
	}
	if o.publishOnError {
		plugin.onError.Store(&onError{stopping: ctx, publish: func() error { return publish(0) }})
	}
	begin := time.Now()
	if err := publish(0); err != nil {
		return fmt.Errorf("publishing: %w", err)
	}
	klog.InfoS("published for the first time", "milliseconds", time.Since(begin).Milliseconds())
	klog.InfoS("serving the kubelet", "driver", o.driverName, "slices", len(slices))

	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGUSR1)
	for revision := int64(1); ; revision++ {
		select {
		case <-again:
			if err := publish(revision); err != nil {
				return fmt.Errorf("publishing revision %d: %w", revision, err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (o options) slices() ([]resourceslice.Slice, error) {
	if o.inventory != "" {
		return readInventory(o.inventory)
	}
	return madeUp(o.nodeName, o.numDevices), nil
}

func (o options) client() (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", o.kubeconfig, err)
	}
	config.QPS = float32(o.qps)
	config.Burst = o.burst
	if o.json {
		config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	}
	return kubernetes.NewForConfig(config)
}
