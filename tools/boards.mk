# What proves the constrained hardware: footprint, real ARM wheels under emulation, real memory limits.
# Read by the Makefile, whose variables it uses.

.PHONY: footprint test-arm test-lowmem

MOBILENET := .footprint/mobilenetv2.onnx

$(MOBILENET): | workstation
	@echo "setup: MobileNetV2 at 224 with random weights, float32 and int8 (edge_tools.benchmarks.mobilenet)"
	@$(WORKSTATION)/python -m edge_tools.benchmarks.mobilenet .footprint

footprint: device $(MOBILENET)  ## What the SDK adds to an import, a prediction of MobileNetV2 and a process's memory
	@echo "footprint: ratios measured in one run (edge_tools.benchmarks.footprint)"
	@PYTHONSAFEPATH=1 $(DEVICE)/python -m edge_tools.benchmarks.footprint .footprint
