"""Secrets as they are met in command lines, variables, logs and sources, and harmless text that looks like them."""

from __future__ import annotations

PEM = (
    "-----BEGIN OPENSSH PRIVATE KEY-----\n"
    "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW\n"
    "QyNTUxOQAAACD5zW4GWmZ3\n"
    "-----END OPENSSH PRIVATE KEY-----"
)

# Words of a command line, and what may not be seen of them.
ARGUMENTS: list[tuple[list[str], str]] = [
    (["--pw", "plum-tree"], "plum-tree"),
    (["--password", "hunter2a"], "hunter2a"),
    (["--password=hunter2b"], "hunter2b"),
    (["--db-password=with=sign"], "with=sign"),
    (["--key", "kerfuffle"], "kerfuffle"),
    (["--api-key", "apikeyvalue"], "apikeyvalue"),
    (["--api_key=apikeyother"], "apikeyother"),
    (["--wandb-key", "0123456789abcdef0123456789abcdef01234567"], "0123456789abcdef"),
    (["--wandb_key=wandbvalue"], "wandbvalue"),
    (["--token", "tokenvalue"], "tokenvalue"),
    (["--hf-token=hfvalue"], "hfvalue"),
    (["--use-auth-token=authvalue"], "authvalue"),
    (["-token", "gostyle"], "gostyle"),
    (["--secret", "sesame"], "sesame"),
    (["--client-secret=sesamseed"], "sesamseed"),
    (["--passphrase", "correct horse battery"], "horse"),
    (["--auth", "me:authpart"], "authpart"),
    (["--credentials", "credvalue"], "credvalue"),
    (["--dsn", "https://dsnpart@sentry.io/3"], "dsnpart"),
    (["mysql", "-uroot", "-pmysqlword"], "mysqlword"),
    (["-phunter22"], "hunter22"),
    (["sshpass", "-p", "sshword", "ssh"], "sshword"),
    (["curl", "-u", "me:curlword", "http://x"], "curlword"),
    (["curl", "-H", "Authorization: Bearer headervalue"], "headervalue"),
    (["curl", "-H", "X-Api-Key: xapivalue"], "xapivalue"),
    (["env", "DB_PASSWORD=envword", "python"], "envword"),
    (["env", "SIGNING_KEY=envkey", "python"], "envkey"),
    (["trainer.wandb_key=hydravalue"], "hydravalue"),
    (["+logger.secret=hydrasecret"], "hydrasecret"),
    (["--store", "redis://me:redisword@host:1/0"], "redisword"),
    (["--store=postgres://me:pgword@host/db"], "pgword"),
    (["--config", '{"api_key": "jsonvalue", "n": 3}'], "jsonvalue"),
    (["python", "-c", "login('programtext')"], "programtext"),
    (["hf_abcdefghijklmnopqrstuvwx"], "hf_abcdefghij"),
]

LINES: list[tuple[str, str]] = [
    ("wandb: api_key=logkey1  ok", "logkey1"),
    ('{"api_key": "logkey2", "epochs": 3}', "logkey2"),
    ('{"password":"logword1","user":"me"}', "logword1"),
    ("{'access_token': 'logtoken1'}", "logtoken1"),
    ('sent "{\\"client_secret\\": \\"logsecret1\\"}"', "logsecret1"),
    ("password: logword2", "logword2"),
    ("Password = 'log word 3', host = x", "log word 3"),
    ("the password is logword4", "logword4"),
    ("denied for password 'wordfive'", "wordfive"),
    ("Authorization: Bearer logbearer1", "logbearer1"),
    ("authorization: Basic bG9nYmFzaWM=", "bG9nYmFzaWM"),
    ("headers={'Authorization': 'Bearer logbearer2'}", "logbearer2"),
    ("using bearer eZx81logbearer3", "eZx81logbearer3"),
    ("Cookie: session=logcookie; id=4", "logcookie"),
    ("  cloning https://me:logurl1@host/x.git", "logurl1"),
    ("  cloning https://ghtokenasuser1@host/x.git", "ghtokenasuser1"),
    ("GET https://host/x?token=logquery1&step=3", "logquery1"),
    ("GET https://host/blob?sv=1&sig=logsig2", "logsig2"),
    ("POST https://hooks.slack.com/services/T000/B000/loghook", "loghook"),
    ("login hf_QwErTyUiOpAsDfGhJkLzXcVbNm", "hf_QwErTy"),
    ("openai.key sk-proj-Ab12Cd34Ef56Gh78Ij90", "Ab12Cd34"),
    ("remote ghp_0123456789abcdefghij0123456789abcdef", "ghp_0123"),
    ("remote github_pat_11ABCDEFG0abcdefghij", "11ABCDEFG0"),
    ("remote glpat-abcdefghij0123456789", "abcdefghij0123"),
    ("aws AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtn"),
    ("slack xoxb-123456789012-abcdefghijkl", "abcdefghijkl"),
    ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4", "SflKxwRJ"),
    ("gcp AIzaSyA1234567890abcdefghijklmnopqrstuv", "SyA12345"),
    ("cmd ['python', 'train.py', '--token', 'loglist1']", "loglist1"),
    ("running: train.py --password logopt1 --lr 3", "logopt1"),
    ("running: mysql -uroot -plogattached", "logattached"),
    ("export NCCL_PASSWORD=logexport1", "logexport1"),
    ("pwd=logpwd1", "logpwd1"),
    ("ValueError: Credentials(user='me', password='logrepr1')", "logrepr1"),
    ("headers [('X-Auth-Token', 'logtuple1'), ('Password', 'logtuple2')]", "logtuple2"),
    ("<password>logxml1</password>", "logxml1"),
    ("passphrase: correct horse staple", "staple"),
    ('key: "aB3dE5fG7hJ9kL1mN3pQ5"', "aB3dE5"),
    (PEM.replace("\n", "\\n") + " wandb login fedcba9876543210fedcba9876543210fedcba98", "fedcba98765"),
]

VARIABLES: list[tuple[str, str]] = [
    ("NCCL_PASSWORD", "variable1"),
    ("NCCL_NET_TOKEN", "variable2"),
    ("GLOO_STORE_SECRET", "variable3"),
    ("NCCL_PROXY_KEY", "variable4"),
    ("OMPI_COMM_WORLD_AUTH", "variable5"),
    ("TORCHELASTIC_ETCD_PASSWD", "variable6"),
    ("NCCL_PROXY", "http://me:variable7@proxy:1"),
    ("GLOO_CREDENTIALS", "variable8"),
]
VARIABLE_SECRETS = [f"variable{number}" for number in range(1, 9)]

# The body of a function; numbers are told of locals, so a number may be a secret as well.
SOURCE = '''\
    password = "sourceword1"
    api_key = f"sourceword2{password}"
    token = b"sourceword3"
    """sourceword4"""
    url = "https://me:sourceword5@host"  # or with sourceword6
    pin_secret = 9172635441
    headers = {"Authorization": "Bearer sourceword8"}
    login(password="123", mode="train")
    passwd: str = "0"
    if mode == "train" and rank == 3:
        wait()
'''
SOURCE_SECRETS = [*(f"sourceword{number}" for number in (1, 2, 3, 4, 5, 6, 8)), "9172635441"]

HARMLESS_ARGUMENTS: list[list[str]] = [
    ["torchrun", "--nproc-per-node", "4", "train.py"],
    ["--keyframe", "3"],
    ["--key-dim", "64"],
    ["--key", "64"],
    ["--num-key-value-heads=8"],
    ["--tokenizer", "gpt2"],
    ["--tokenizer=meta-llama/Llama-3-8B"],
    ["--max-tokens", "512"],
    ["--max_tokens=512"],
    ["--eos-token-id", "2"],
    ["--pad-token", "<pad>"],
    ["--sort-key", "length"],
    ["--use-auth-token", "train.py"],
    ["--no-password", "train.py"],
    ["--password-file", "/run/secrets/db"],
    ["-p", "29500"],
    ["-p8080"],
    ["-p", "gpu"],
    ["srun", "-p", "gpu8", "train.py"],
    ["-pthread"],
    ["-py3.10"],
    ["monkey.py"],
    ["hf_finetune_llama_lora.py"],
    ["--pass", "2"],
    ["--bypass=True"],
    ["-u", "train.py"],
    ["docker", "--user", "1000:1000"],
    ["--rdzv-endpoint=node0:29400"],
    ["--rdzv-id=job-20251120-112400"],
    ["--author", "me"],
    ["--authentic"],
    ["sk-learn-contrib-something-else"],
    ["optimizer.lr=1e-3", "model.key_size=64"],
    ["--compass", "north"],
]

HARMLESS_LINES = [
    "loss: 0.3  tokens=512  tokens/s: 10321",
    "max_tokens=512",
    "key_padding_mask=None",
    "torch.manual_seed(0)",
    "KeyError: 'model.layers.0.weight'",
    "ValueError: token type 3",
    "ValueError: next token: hello",
    'Missing key(s) in state_dict: "lm_head.weight"',
    "size mismatch for cls_token: copying a param with shape torch.Size([1, 1, 768])",
    "    token = self.tokenizer.pad_token",
    "    password=os.environ['DB_PASSWORD'],",
    "password: required",
    "Enter the password:",
    "no secret is needed",
    "monkey patching: turkey=3 hockey: on",
    "/home/me/keys/monkey/passing/tokenizer.json",
    "/data/Experiments/Run2024/Llama3LargeModel/Checkpoints/Step100000/ModelWeights/Shard7",
    "commit b3cbf167dda162c802825a1cdac831ff56cc2424",
    "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
    "[rank0]: Traceback (most recent call last):",
    '  File "/home/me/train.py", line 31, in step_tokens',
    "RuntimeError: [/pytorch/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.1]:4711",
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    "what():  [enforce fail at pair.cc:459] op.preamble.length <= op.nbytes. 64 vs 32",
    "c10d::TCPStore::wait keys: /default_pg/0//cpu//0/rank_1",
    "dist.init_process_group('gloo', init_method='tcp://10.0.0.1:29500')",
    "author: me; authors=3; compass: north; passed: 12",
    "PASS: test_something; forward pass: 3",
    "attention key=64 value=64 query=64",
    "sorted(items, key=lambda item: item.size)",
    "cache_key=None, use_auth_token=True, token=None",
    "the bearer of bad news; Bearer authentication failed",
    "http://host:8080/path?step=3&epoch=4",
    "git@github.com:me/repo.git",
    "epoch 3: 100%|##########| 10/10 [00:03<00:00, 3.1it/s]",
    "token id 50256; token=50256; token: 5",
    "secret=None password='' api_key=None pw=***",
    "-p 29500 -p8080",
    "PWD=/home/me OLDPWD=/tmp",
    "wandb: Run `wandb offline` to turn off syncing.",
    "DataLoader(num_workers=4, pin_memory=True, prefetch_factor=2)",
]
