"""Parked mail is kept, is nobody else's business, and goes in the end."""


def bucket(stack):
    ((name, resource),) = stack.all("AWS::S3::Bucket").items()
    assert name == "Parking/Bucket"
    return resource


def test_it_outlives_the_stack_with_its_policy(made):
    for name in ("Bucket", "TlsOnly"):
        resource = made.nested["Parking"].resources[name]
        assert resource["DeletionPolicy"] == "RetainExceptOnCreate", name
        assert resource["UpdateReplacePolicy"] == "Retain", name


def test_it_is_encrypted_and_private(stack):
    properties = bucket(stack)["Properties"]
    (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
    assert properties["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
    block = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
    assert properties["PublicAccessBlockConfiguration"] == dict.fromkeys(block, True)


def test_it_refuses_plain_text_connections(stack):
    (policy,) = (p["Properties"] for p in stack.all("AWS::S3::BucketPolicy").values())
    assert policy["Bucket"] == "{Parking/Bucket}"
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Principal"], statement["Action"]) == ("Deny", "*", "s3:*")
    assert statement["Resource"] == ["{Parking/Bucket.Arn}", "{Parking/Bucket.Arn}/*"]
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_what_is_released_is_gone_and_what_is_forgotten_goes(made):
    properties = bucket(made)["Properties"]
    assert "VersioningConfiguration" not in properties
    rules = properties["LifecycleConfiguration"]["Rules"]
    assert all(rule["Status"] == "Enabled" for rule in rules)
    (parked,) = (rule for rule in rules if "ExpirationInDays" in rule)
    assert parked["Prefix"] == "parked/"
    (aborted,) = (rule for rule in rules if "AbortIncompleteMultipartUpload" in rule)
    assert "Prefix" not in aborted


def test_no_other_bucket_is_named_in_any_role(stack):
    for name, role in stack.all("AWS::IAM::Role").items():
        for policy in role["Properties"]["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                if "s3:" in str(statement["Action"]):
                    assert str(statement["Resource"]).startswith("{Parking/Bucket.Arn}"), name
