import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Asks Apache Kafka's own authorizer. Lines of standard input, with tabs between the parts:
 *
 *   rule  TYPE PATTERN NAME PRINCIPAL HOST OPERATION PERMISSION
 *   ask   PRINCIPAL HOST OPERATION TYPE NAME      prints ALLOWED or DENIED
 *   any   PRINCIPAL HOST OPERATION TYPE           the same, of any resource of the type
 *   clear
 */
public class Questions {
    record Caller(KafkaPrincipal principal, InetAddress clientAddress)
            implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return ""; }
        public int correlationId() { return 0; }
    }

    static Caller caller(String principal, String host) throws Exception {
        String[] parts = principal.split(":", 2);
        return new Caller(new KafkaPrincipal(parts[0], parts[1]), InetAddress.getByName(host));
    }

    public static void main(String[] arguments) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of("super.users", arguments[0], "node.id", "1"));
        authorizer.completeInitialLoad();
        Map<Uuid, StandardAcl> rules = new HashMap<>();
        boolean changed = true;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder answers = new StringBuilder();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] part = line.split("\t", -1);
            if (part[0].equals("clear")) {
                rules.clear();
                changed = true;
            } else if (part[0].equals("rule")) {
                rules.put(Uuid.randomUuid(), new StandardAcl(
                    ResourceType.valueOf(part[1]), part[3], PatternType.valueOf(part[2]), part[4],
                    part[5], AclOperation.valueOf(part[6]), AclPermissionType.valueOf(part[7])));
                changed = true;
            } else {
                if (changed) {
                    authorizer.loadSnapshot(rules);
                    changed = false;
                }
                Caller caller = caller(part[1], part[2]);
                AclOperation operation = AclOperation.valueOf(part[3]);
                ResourceType type = ResourceType.valueOf(part[4]);
                AuthorizationResult answer;
                if (part[0].equals("ask")) {
                    ResourcePattern named = new ResourcePattern(type, part[5], PatternType.LITERAL);
                    Action action = new Action(operation, named, 1, false, false);
                    answer = authorizer.authorize(caller, List.of(action)).get(0);
                } else {
                    answer = authorizer.authorizeByResourceType(caller, operation, type);
                }
                answers.append(answer).append('\n');
            }
        }
        System.out.print(answers);
    }
}
