"""Makes the users and the machines that the checks of scripts/clouds find in moto, and then switches authentication on."""

import json
import re
import secrets
import sys
from itertools import cycle, islice

import client

# Two with a fleet, one for machines that are ordered, one for syncs that fail and one for orders that do.
FLEET_REGIONS = ["eu-central-1", "eu-north-1"]
ORDER_REGION = "eu-west-1"
FAULT_REGION = "us-west-2"
FAULTY_ORDER_REGION = "us-east-2"
REGIONS = [*FLEET_REGIONS, ORDER_REGION, FAULT_REGION, FAULTY_ORDER_REGION]

OPERATION_TAG = "tenant-control:operation"
# moto's account, and the name that the document gives to user, role and policy.
ACCOUNT = "123456789012"
NAME = "tenant-control"

ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
READING = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:Describe*", "Resource": "*"}]}

FLEET_SIZE = 1000
# In groups of these sizes, so that pages end inside of some.
RESERVATION_SIZES = [1, 30, 7, 50, 12]


def read_documented_policies(path):
    """The policies that readers are told to copy: of the user, of a user who assumes a role, and whom the role trusts."""
    with open(path, encoding="utf-8") as file:
        blocks = re.findall(r"```json\n(.*?)```", file.read(), re.DOTALL)
    policies = [json.loads(block.replace("111111111111", ACCOUNT)) for block in blocks if '"2012-10-17"' in block]
    client.expect(len(policies) == 3, f"{path} has {len(policies)} policies of AWS, not 3")
    return policies


def drop_action(policy, action):
    """The policy without one of its actions."""
    kept = []
    for statement in policy["Statement"]:
        actions = [kept_action for kept_action in list_actions(statement) if kept_action != action]
        kept += [{**statement, "Action": actions}] if actions else []
    return {**policy, "Statement": kept}


def list_actions(statement):
    return [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]


def create_user(iam, name, policy):
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=NAME, PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}


def run_instances(ec2, image, count, size, name, tags=()):
    tags = [{"Key": key, "Value": value} for key, value in [("Name", name), *tags]]
    ec2.run_instances(ImageId=image, MinCount=count, MaxCount=count, InstanceType=size,
                      TagSpecifications=[{"ResourceType": "instance", "Tags": tags}])


def find_image(region):
    """An image of Amazon Linux, as the verification looks for it. Every region has its own."""
    filters = [{"Name": "name", "Values": ["al2023-ami-2023.*-x86_64"]}]
    return client.open_aws("ec2", region).describe_images(Owners=["amazon"], Filters=filters)["Images"][0]["ImageId"]


def create_fleet(images):
    for region in FLEET_REGIONS:
        ec2, image, left = client.open_aws("ec2", region), images[region], FLEET_SIZE // len(FLEET_REGIONS)
        for number, count in enumerate(islice(cycle(RESERVATION_SIZES), FLEET_SIZE)):
            count = min(count, left)
            left -= count
            organization = ["globex", "nobody", ""][number % 3]
            tags = [("env", "prod & <test>"), ("tenant-control:organization", organization)]
            run_instances(ec2, image, count, ["t3.micro", "m5.large"][number % 2], f"web-{number}", tags)
            if left == 0:
                break


def create_role(iam, trust, policy):
    arn = iam.create_role(RoleName=NAME, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    iam.put_role_policy(RoleName=NAME, PolicyName=NAME, PolicyDocument=json.dumps(policy))
    [statement] = trust["Statement"]
    return {"arn": arn, "external_id": statement["Condition"]["StringEquals"]["sts:ExternalId"]}


def main():
    document, tenant, organization = sys.argv[1:]
    with open(client.STATE_PATH, "w", encoding="utf-8") as file:
        file.write("{}")
    policy, assuming, trust = read_documented_policies(document)
    actions = sorted({action for statement in policy["Statement"] for action in list_actions(statement)})
    users = {"administrator": ALL, "reading": READING, "documented": policy, "faulty": policy, NAME: assuming}
    users |= {f"without {action}": drop_action(policy, action) for action in actions}
    iam = client.open_aws("iam")
    state = {name: create_user(iam, name.replace(" ", "-").replace(":", "-"), granted) for name, granted in users.items()}
    state |= {"role": create_role(iam, trust, policy), "actions": actions, "tenant": tenant,
              "organization": organization}
    canary = secrets.token_hex(17)
    state["canaries"] = {"secret": f"canary{canary}", "user_data": f"#!/bin/sh\necho {canary[::-1]}"}
    # As long as the id of a key, and nobody's.
    state["unknown"] = {"id": "AKIA0000000000000000", "secret": state["reading"]["secret"]}
    state["images"] = {region: find_image(region) for region in REGIONS}
    with client.change_state() as changed:
        changed |= state
    status, text = client.send("POST", client.MOTO_URL + "/moto-api/reset-auth", 0)
    client.expect_same("moto's answer to authenticating", (200, "ok"), (status, json.loads(text)["status"]))
    create_fleet(state["images"])
    run_instances(client.open_aws("ec2", FAULT_REGION), state["images"][FAULT_REGION], 3, "t3.micro", "steady")
    print(f"moto has {FLEET_SIZE} machines in {len(FLEET_REGIONS)} regions, and authenticates")


if __name__ == "__main__":
    main()
