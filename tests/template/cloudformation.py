"""Works a template out for given parameters, as CloudFormation would, without an account.

What only a deployed resource knows comes out as text: `{PriorityLane/IntakeQueue.Arn}` is the attribute Arn of the
resource IntakeQueue of the nested stack PriorityLane. So a test can follow a value through nested stacks. A reference
to something that the conditions leave out is an error, as it is for CloudFormation.
"""

import ipaddress
import itertools
import re
from functools import cache, cached_property
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
NO_VALUE = object()
STACK_UUID = "51af3dc0-da77-11e4-872e-1234567db123"


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms: `!Ref X` is `{"Ref": "X"}`."""


def _short_form(loader, name, node):
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if name == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {name if name in ("Ref", "Condition") else f"Fn::{name}": value}


_Loader.add_multi_constructor("!", _short_form)


@cache
def load(path):
    """The template as it is written. `path` is relative to the repository."""
    return yaml.load((ROOT / path).read_text(), _Loader)


class Refused(Exception):
    """A parameter or a rule does not allow this."""


class Stack:
    """A template with its parameters."""

    def __init__(self, parameters=None, path="template.yaml", name=""):
        self.path, self.name, self.template = path, name, load(path)
        self.parameters = self._check(parameters or {})
        for rule in self.template.get("Rules", {}).values():
            if self.value(rule.get("RuleCondition", True)):
                for assertion in rule["Assertions"]:
                    if not self.value(assertion["Assert"]):
                        raise Refused(assertion["AssertDescription"])

    def _check(self, given):
        declared = self.template.get("Parameters", {})
        if unknown := given.keys() - declared.keys():
            raise Refused(f"{self.path} has no parameters {sorted(unknown)}")
        values = {}
        for name, rules in declared.items():
            if name not in given and "Default" not in rules:
                raise Refused(f"{self.path} needs {name}")
            text = str(given.get(name, rules.get("Default")))
            values[name] = text
            if self.name and "{" in text:
                continue  # an attribute, known only once deployed
            checks = [
                "AllowedPattern" not in rules or re.fullmatch(rules["AllowedPattern"], text),
                "AllowedValues" not in rules or text in map(str, rules["AllowedValues"]),
                len(text) <= rules.get("MaxLength", len(text)),
            ]
            if rules["Type"] == "Number":
                number = float(text)
                checks.append(rules.get("MinValue", number) <= number <= rules.get("MaxValue", number))
            if not all(checks):
                raise Refused(f"{name} {text!r}")
        return values

    @cached_property
    def conditions(self):
        """Each condition's value."""
        return {name: self.value(test) for name, test in self.template.get("Conditions", {}).items()}

    @cached_property
    def resources(self):
        """The resources that are made, with the globals of their functions in them."""
        shared = self.template.get("Globals", {}).get("Function", {})
        made = {}
        for name, resource in self.template["Resources"].items():
            if not self.value({"Condition": resource["Condition"]} if "Condition" in resource else True):
                continue
            if resource["Type"] == "AWS::Serverless::Function":
                resource = {**resource, "Properties": _merged(shared, resource["Properties"])}
            made[name] = self.value({k: v for k, v in resource.items() if k not in ("Condition", "Metadata")})
            made[name]["Metadata"] = resource.get("Metadata", {})
        return made

    @cached_property
    def nested(self):
        """The nested stacks by name, made when first asked for."""
        return _Nested(self)

    @cached_property
    def outputs(self):
        """The outputs' values."""
        outputs = self.template.get("Outputs", {}).items()
        return {
            name: self.value(output["Value"])
            for name, output in outputs
            if "Condition" not in output or self.value({"Condition": output["Condition"]})
        }

    def all(self, kind):
        """Every resource of a type here and in nested stacks, by its path such as `BulkLane/SendQueue`."""
        found = {self.name + name: r for name, r in self.resources.items() if r["Type"] == kind}
        for name, resource in self.resources.items():
            if resource["Type"] == "AWS::CloudFormation::Stack":
                found |= self.nested[name].all(kind)
        return found

    def value(self, node):
        """What `node` comes to."""
        if isinstance(node, list):
            return [v for v in map(self.value, node) if v is not NO_VALUE]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((key, argument),) = node.items()
            if key == "Condition" and isinstance(argument, str):
                return self.value(self.template["Conditions"][argument])
            if key == "Ref" or key.startswith("Fn::"):
                return getattr(self, "_" + key.removeprefix("Fn::").lower())(argument)
        values = {k: self.value(v) for k, v in node.items()}
        return {k: v for k, v in values.items() if v is not NO_VALUE}

    @cached_property
    def generated(self):
        """What SAM makes of the functions' queues: a mapping each, named after the function and the event."""
        return {
            function + event: {"Type": "AWS::Lambda::EventSourceMapping"}
            for function, resource in self.template["Resources"].items()
            for event, source in resource.get("Properties", {}).get("Events", {}).items()
            if source["Type"] == "SQS"
        }

    def _made(self, name):
        resource = (self.template["Resources"] | self.generated)[name]
        if "Condition" in resource and not self.value({"Condition": resource["Condition"]}):
            raise LookupError(f"{self.path} refers to {name}, which is not made")
        return resource

    def _ref(self, name):
        pseudo = {
            "AWS::NoValue": NO_VALUE,
            "AWS::AccountId": "123456789012",
            "AWS::Partition": "aws",
            "AWS::Region": "eu-west-1",
            "AWS::StackId": f"arn:aws:cloudformation:eu-west-1:123456789012:stack/stack/{STACK_UUID}",
            "AWS::StackName": "stack",
        }
        if name in pseudo:
            return pseudo[name]
        if name in self.parameters:
            value = self.parameters[name]
            return value.split(",") if "List" in self.template["Parameters"][name]["Type"] else value
        self._made(name)
        return f"{{{self.name}{name}}}"

    def _getatt(self, path):
        name, attribute = path
        if self._made(name)["Type"] == "AWS::CloudFormation::Stack":
            return self.nested[name].outputs[attribute.removeprefix("Outputs.")]
        return f"{{{self.name}{name}.{attribute}}}"

    def _sub(self, argument):
        text, given = argument if isinstance(argument, list) else (argument, {})
        given = self.value(given)

        def one(match):
            name, _, attribute = match[1].partition(".")
            if match[1] in given:
                return str(given[match[1]])
            return str(self._getatt([name, attribute]) if attribute else self._ref(match[1]))

        # An exclamation mark keeps what follows from being replaced, and is dropped.
        return re.sub(r"\$\{([^!}]+)\}", one, text).replace("${!", "${")

    def _if(self, argument):
        condition, yes, no = argument
        return self.value(yes if self.value({"Condition": condition}) else no)

    def _equals(self, pair):
        one, other = map(self.value, pair)
        return str(one) == str(other)

    def _not(self, one):
        return not self.value(one[0])

    def _and(self, many):
        return all(self.value(one) for one in many)

    def _or(self, many):
        return any(self.value(one) for one in many)

    def _findinmap(self, path):
        table, row, column = map(self.value, path)
        return self.template["Mappings"][table][str(row)][column]

    def _join(self, argument):
        return argument[0].join(self.value(argument[1]))

    def _split(self, argument):
        return self.value(argument[1]).split(argument[0])

    def _select(self, argument):
        return self.value(argument[1])[int(argument[0])]

    def _getazs(self, _):
        return ["zone-a", "zone-b", "zone-c"]

    def _cidr(self, argument):
        block, count, bits = map(self.value, argument)
        subnets = ipaddress.ip_network(block).subnets(new_prefix=32 - int(bits))
        return [str(subnet) for subnet in itertools.islice(subnets, int(count))]


class _Nested(dict):
    def __init__(self, parent):
        super().__init__()
        self.parent = parent

    def __missing__(self, name):
        resource = self.parent._made(name)["Properties"]
        parameters = self.parent.value(resource.get("Parameters", {}))
        parameters = {k: ",".join(v) if isinstance(v, list) else v for k, v in parameters.items()}
        self[name] = Stack(parameters, resource["TemplateURL"], f"{self.parent.name}{name}/")
        return self[name]


def _merged(shared, own):
    """As SAM does it: a map into a map, and what is worked out (`Ref`, `Fn::If`) is no map."""
    merged = {**shared, **own}
    for key in shared.keys() & own.keys():
        if all(isinstance(one, dict) and not _is_worked_out(one) for one in (shared[key], own[key])):
            merged[key] = _merged(shared[key], own[key])
    return merged


def _is_worked_out(node):
    return len(node) == 1 and next(iter(node)).startswith(("Ref", "Fn::", "Condition"))
